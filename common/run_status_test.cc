#include "common/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;

RunStatus Training() {
  RunStatus status;
  status.mode = "async";
  status.state = "training";
  status.actors.resize(1);
  status.actors[0].state = "active";
  return status;
}

TEST(FindLimit, NamesTheBusiestStationAndWhatToDo) {
  RunStatus status = Training();
  status.stations = {{"env", "actors", 0.9, 0.05, 0.05}, {"update", "learner", 0.3, 0.7, 0}};
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "env");
  EXPECT_THAT(status.advice, HasSubstr("more actors"));
  EXPECT_THAT(status.advice, Not(HasSubstr("mode: async")));
  status.stations[1].busy = 0.95;
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "update");
  EXPECT_THAT(status.advice, HasSubstr("run.threads"));
}

TEST(FindLimit, AdvisesSettingsThatTheAlgorithmHas) {
  RunStatus status = Training();
  status.algorithm = "sac";
  for (const char* station : {"send", "ingest", "update", "transport"}) {
    const double busy = station == std::string("transport") ? 0.1 : 0.9;
    status.stations = {{"env", "actors", 0.05, 0.05, 0.9}, {station, "learner", busy, 0.1, 0}};
    FindLimit(status);
    EXPECT_EQ(status.limiting_station, station);
    EXPECT_THAT(status.advice, testing::AllOf(HasSubstr("sac."), Not(HasSubstr("ppo."))));
  }
}

TEST(FindLimit, SyncModeWithAnIdleSideIsToldOfAsync) {
  RunStatus status = Training();
  status.mode = "sync";
  status.stations = {{"env", "actors", 0.5, 0.5, 0}, {"update", "learner", 0.4, 0.6, 0}};
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "env");
  EXPECT_THAT(status.advice, HasSubstr("mode: async"));
}

TEST(FindLimit, MissingActorsComeFirst) {
  RunStatus status = Training();
  status.stations = {{"env", "actors", 0.5, 0.5, 0}, {"update", "learner", 0.9, 0.1, 0}};
  status.actors[0].state = "silent";
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "actors");
  EXPECT_THAT(status.advice, HasSubstr("millrace actor"));
  status.actors[0].state = "active";
  status.rows_missing = 4;
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "update") << "async mode does not wait for rows";
  status.mode = "sync";
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "actors");
  EXPECT_THAT(status.advice, HasSubstr("4 rows"));
  status.awaited = {"a7"};  // another actor would not be given these rows
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "actors");
  EXPECT_THAT(status.advice, HasSubstr("--name a7"));
}

TEST(FindLimit, WhereNothingIsBusyTheWayBetweenLimits) {
  RunStatus status = Training();
  status.stations = {{"env", "actors", 0.2, 0.4, 0.4}, {"update", "learner", 0.1, 0.9, 0}};
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "transport");
}

TEST(FindLimit, AStationWithoutAdviceOfItsOwnIsNamed) {
  RunStatus status = Training();
  status.stations = {{"env", "actors", 0.1, 0.9, 0}, {"replay", "learner", 0.8, 0.2, 0}};
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "replay");
  EXPECT_THAT(status.advice, HasSubstr("replay"));
}

TEST(FindLimit, SaysNothingWhereNothingIsKnownOrTheRunStands) {
  RunStatus status = Training();
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "");
  status.stations = {{"update", "learner", 0.9, 0.1, 0}};
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "") << "nothing is known of the actors yet";
  status.stations.push_back({"env", "actors", 0.1, 0.9, 0});
  status.state = "paused";
  status.advice = "of before";
  FindLimit(status);
  EXPECT_EQ(status.limiting_station, "");
  EXPECT_EQ(status.advice, "");
}

}  // namespace
}  // namespace millrace
