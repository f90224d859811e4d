#include "cli/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/config.h"

namespace millrace {
namespace {

// Tests run side by side.
std::string FreshDir() {
  const std::string dir = testing::TempDir() + "presets-" + std::to_string(getpid()) + "/";
  std::filesystem::create_directories(dir);
  return dir;
}

using ::testing::HasSubstr;

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return names;
}

// A file in the test's temporary folder.
std::string Write(const std::string& name, const std::string& text) {
  const std::string path = FreshDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(Presets, AreThereInOrder) {
  EXPECT_THAT(Names(), testing::IsSupersetOf({"acrobot", "breakout", "cartpole", "cartpole-sac",
                                              "deep-critic-sac", "mountaincar", "mountaincar-continuous",
                                              "mountaincar-continuous-sac", "pendulum", "pendulum-sac"}));
  const std::vector<std::string> names = Names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(Presets, AllLoadAndAreNamedAfterThemselves) {
  for (const Preset& preset : Presets()) {
    const auto options = LoadPresetOrFile(preset.name, {});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE(Validate(*options).ok());
    EXPECT_EQ(options->run.name, preset.name);
    EXPECT_FALSE(options->env.id.empty());
  }
}

TEST(Presets, HaveASummaryOfOneLine) {
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(absl::StartsWith(preset.text, absl::StrCat("# ", preset.summary, "\n"))) << preset.name;
    EXPECT_GT(preset.summary.size(), 10u) << preset.name;
    EXPECT_LE(preset.summary.size(), 108u) << preset.name;
  }
}

TEST(Presets, MistypedNameIsAnsweredWithTheNearest) {
  EXPECT_EQ(LoadPresetOrFile("cartpol", {}).status().message(),
            "cartpol: no such preset or file; did you mean cartpole? (presets: acrobot, breakout, cartpole, "
            "cartpole-sac, deep-critic-sac, mountaincar, mountaincar-continuous, mountaincar-continuous-sac, "
            "pendulum, "
            "pendulum-sac)");
  EXPECT_EQ(FindPreset("zzz").status().message(),
            "zzz: no such preset (presets: acrobot, breakout, cartpole, cartpole-sac, deep-critic-sac, "
            "mountaincar, "
            "mountaincar-continuous, mountaincar-continuous-sac, pendulum, pendulum-sac)");
  EXPECT_FALSE(LoadPresetOrFile("", {}).ok());
}

TEST(Presets, OverridesReachThePreset) {
  const std::vector<std::string> overrides = {"env.rows=16", "ppo.minibatch_size=1"};
  const auto options = LoadPresetOrFile("cartpole", overrides);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->env.rows, 16u);
  const std::vector<std::string> wrong = {"ppo.minibatch_size=100000000"};
  EXPECT_THAT(
      std::string(LoadPresetOrFile("cartpole", wrong).status().message()),
      HasSubstr(
          "--set ppo.minibatch_size=100000000: ppo.minibatch_size: 100000000 is larger than the batch"));
}

TEST(Files, LoadAndGiveTheirName) {
  const std::string path = Write("my-run.yaml", "env:\n  id: Pendulum-v1\n");
  const auto options = LoadPresetOrFile(path, {});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->run.name, "my-run");
  const std::vector<std::string> overrides = {"run.name=other"};
  EXPECT_EQ(LoadPresetOrFile(path, overrides)->run.name, "other");
  EXPECT_TRUE(LoadPresetOrFile(Write("no_ending", "env:\n  id: Pendulum-v1\n"), {}).ok());
}

TEST(Files, ErrorsNameTheFile) {
  const std::string bad = Write("bad.yaml", "env:\n  idd: Pendulum-v1\n");
  EXPECT_EQ(LoadPresetOrFile(bad, {}).status().message(),
            absl::StrCat(bad, ":2: env.idd: unknown key; did you mean env.id?"));
  EXPECT_EQ(LoadPresetOrFile("missing.yaml", {}).status().message(),
            "missing.yaml: cannot be read: No such file or directory; check the path");
  const std::string folder = FreshDir() + "folder.yaml";
  std::filesystem::create_directory(folder);
  EXPECT_EQ(LoadPresetOrFile(folder, {}).status().message(),
            absl::StrCat(folder, ": is a folder; name a YAML file or a preset"));
  const std::string large = Write("large.yaml", std::string(2 << 20, '#'));
  EXPECT_THAT(std::string(LoadPresetOrFile(large, {}).status().message()), HasSubstr("is larger than 1 MiB"));
}

}  // namespace
}  // namespace millrace
