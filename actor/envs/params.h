// Reads an environment's own settings (env.params) and says by name what is wrong with them. A factory asks
// for every key that it knows, then for status(), which also refuses every key that nobody asked for.
// Station: env_pool. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actor/env.h"

namespace millrace {

class ParamReader {
 public:
  // `id` is the environment's, for messages; `params` must outlive the reader.
  ParamReader(std::string id, const EnvParams& params);

  // The value of `key`, or `fallback` where it is absent or wrong; status() then tells.
  int64_t Int(const std::string& key, int64_t fallback, int64_t least, int64_t most);
  bool Bool(const std::string& key, bool fallback);
  // Whole numbers with "x" or "," between them: 84x84x4.
  std::vector<int> Ints(const std::string& key, const std::vector<int>& fallback, int64_t least,
                        int64_t most);

  bool has(const std::string& key) const { return params_.contains(key); }
  // Records an error of the factory's own, about `key`.
  void Fail(const std::string& key, const std::string& message);

  // The first wrong value, else the first unknown key, else OK.
  Status status() const;

 private:
  const std::string* Find(const std::string& key);

  std::string id_;
  const EnvParams& params_;
  std::vector<std::string> known_;
  Status first_error_;
};

}  // namespace millrace
