// Configuration: YAML and --set in, checked RunOptions out, and back. The schema is
// proto/millrace/v1/config.proto; no protobuf type shows here. Owner: none, these are functions; any thread.
// Station: before all of them, the command line calls it once.
//
// Every error is InvalidArgument with one line `place: key: what is wrong; what to do`, where the place is
// `file:line` or the --set it came from:
//   config.yaml:12: ppo.clip_rnage: unknown key; did you mean ppo.clip_range?
//   --set ppo.epochs=x: ppo.epochs: expected a whole number, got "x"
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/options.h"
#include "common/status.h"

namespace millrace {

// Reads `text` (YAML), lays the overrides (`key.path=value`, the value in YAML too, later ones win) over it,
// fills the rest with the defaults and checks everything. `file_name` is for messages only.
StatusOr<RunOptions> LoadConfig(std::string_view text, std::string_view file_name,
                                std::span<const std::string> overrides);

// Ranges of single values and rules between values, as far as no environment is needed to know them.
Status Validate(const RunOptions& options);

// All settings in the order of the schema. LoadConfig gives back exactly the same options, if these are
// valid.
std::string ToYaml(const RunOptions& options);

// The form inside checkpoints: JSON with the names of the schema. Parsing ignores fields that it does not
// know, keeps the defaults of absent ones, and validates.
std::string SerializeConfig(const RunOptions& options);
StatusOr<RunOptions> ParseConfig(std::string_view bytes);

// `text` as a YAML scalar that reads back as it is: plain, or in double quotes where YAML would see something
// else.
std::string YamlText(std::string_view text);

// A number as text: the shortest that reads back as the same bits; without an exponent where that stays
// readable.
std::string FormatNumber(double value);

}  // namespace millrace
