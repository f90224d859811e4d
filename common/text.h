// Cat and CatTo: absl::StrCat and StrAppend that also take std::string_view, which they refuse where abseil
// is built with a string_view of its own (as Debian's is). Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {
namespace internal {
template <typename T>
decltype(auto) ForAbsl(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(value.data(), value.size());
  } else {
    return (value);
  }
}
}  // namespace internal

template <typename... Ts>
std::string Cat(const Ts&... parts) {
  return absl::StrCat(internal::ForAbsl(parts)...);
}

template <typename... Ts>
void CatTo(std::string& text, const Ts&... parts) {
  absl::StrAppend(&text, internal::ForAbsl(parts)...);
}

}  // namespace millrace
