# cmake -DOUT=FILE.cc -DFILES="A.yaml;B.yaml" -P embed_presets.cmake: the files as string literals in one source file.
set(entries "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  if(text MATCHES "\\)preset\"")
    message(FATAL_ERROR "${file}: may not contain )preset\"")
  endif()
  string(APPEND entries "    {\"${name}\", R\"preset(${text})preset\"},\n")
endforeach()
file(WRITE ${OUT} "// Generated from cli/presets/*.yaml.
#include \"cli/preset_data.h\"

namespace millrace {
const std::vector<PresetText>& PresetTexts() {
  static const std::vector<PresetText> texts = {
${entries}  };
  return texts;
}
}  // namespace millrace
")
