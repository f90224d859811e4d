#include "cli/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

RunStatus Sample() {
  RunStatus s;
  s.run_id = "cartpole-1-00ff";
  s.run_dir = "runs/c";
  s.mode = "async";
  s.state = "training";
  s.preset = "cartpole";
  s.env = "CartPole-v1";
  s.algorithm = "ppo";
  s.learner_incarnation = 0xffff'ffff'ffff'fff1ull;
  s.steps = 245'000;
  s.max_steps = 500'000;
  s.return_mean = 231.5;
  s.weights_bytes = 3 << 20;
  s.policy_lag_histogram = {10, 0, 3};
  s.actors.resize(2);
  s.actors[0].name = "actor-0";
  s.actors[0].state = "active";
  s.actors[1].name = "far";
  s.actors[1].transport_note = "no shared memory: another host";
  s.queues = {{"segments", 3, 2048, 4096, 99, 0.5}};
  s.counters = {{"duplicates", 7}};
  s.stations = {{"env", "actors", 0.5, 0.25, 0.25}};
  s.limiting_station = "env";
  s.advice = "start more actors";
  return s;
}

TEST(StatusText, ShowsWhatAPersonAsksFor) {
  const std::string text = StatusText(Sample(), false);
  for (const char* part : {"cartpole on CartPole-v1", "training", "245k of 500k (49%)", "return ", "231.5",
                           "actor-0", "far: no shared memory", "3.0 MiB", "0: 10, 2: 3\n", "duplicates 7",
                           "##########xxxxx.....   50%", "limit: env - start more actors"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(StatusText(Sample(), true), HasSubstr("\u2588"));
}

TEST(StatusText, LeavesOutWhatThereIsNot) {
  RunStatus empty;
  const std::string text = StatusText(empty, false);
  EXPECT_THAT(text, HasSubstr("none yet"));
  for (const char* part : {"actor", "queue", "counted", "station", "limit", "nan"}) {
    EXPECT_THAT(text, Not(HasSubstr(part)));
  }
}

TEST(StatusJson, NumbersAreNumbersAndWhatIsUnknownIsNull) {
  const Json json = Json::parse(StatusJson(Sample()));
  EXPECT_EQ(json["steps"], 245'000);
  EXPECT_EQ(json["return_mean"], 231.5);
  EXPECT_TRUE(json["policy_loss"].is_null());
  EXPECT_EQ(json["learner_incarnation"], 0xffff'ffff'ffff'fff1ull);
  EXPECT_EQ(json["actors"][1]["name"], "far");
  EXPECT_EQ(json["queues"][0]["depth"], 3);
  EXPECT_EQ(json["counters"][0]["value"], 7);
  EXPECT_EQ(json["stations"][0]["busy"], 0.5);
  EXPECT_EQ(json["policy_lag_histogram"], (std::vector<int>{10, 0, 3}));
}

TEST(StatusJson, SurvivesNamesThatAreNoText) {
  RunStatus s = Sample();
  s.actors[0].name = "\xff\xfe";
  EXPECT_TRUE(Json::accept(StatusJson(s)));
}

// The names of each message of the schema, and no other.
TEST(StatusJson, HasTheNamesOfTheSchema) {
  std::ifstream in(MILLRACE_GOLDEN_DIR "/../../proto/millrace/v1/status.proto");
  ASSERT_TRUE(in);
  std::map<std::string, std::set<std::string>> schema;
  std::string line, message;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
    if (word.size() >= 2 && word[0] == "message") message = word[1];
    // [optional|repeated] type name = number;
    const auto equals = std::find(word.begin(), word.end(), "=");
    const bool field = line.rfind("  ", 0) == 0 && equals != word.end() && equals - word.begin() >= 2;
    if (field && word[0].rfind("//", 0) != 0) schema[message].insert(*std::prev(equals));
  }
  const auto names = [](const Json& json) {
    std::set<std::string> keys;
    for (const auto& item : json.items()) keys.insert(item.key());
    return keys;
  };
  const Json json = Json::parse(StatusJson(Sample()));
  EXPECT_EQ(names(json), schema["RunStatus"]);
  EXPECT_EQ(names(json["actors"][0]), schema["ActorStatus"]);
  EXPECT_EQ(names(json["queues"][0]), schema["QueueStatus"]);
  EXPECT_EQ(names(json["counters"][0]), schema["Counter"]);
  EXPECT_EQ(names(json["stations"][0]), schema["StationShare"]);
}

}  // namespace
}  // namespace millrace
