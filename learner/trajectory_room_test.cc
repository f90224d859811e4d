// Actors of async mode for whose rows the learner has no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "learner/testing/fake_actor.h"
#include "learner/trajectory_service.h"

namespace millrace {
namespace {

using namespace trajectory_testing;
using testing::AllOf;
using testing::Contains;
using testing::FieldsAre;
using testing::HasSubstr;

TEST(TrajectoryService, AnAsyncActorThatIsTooManyIsToldWhyAndTakenWhenThereIsRoom) {
  Fixture f(RunMode::kAsync);
  f.service->SetMostRows(17);  // two actors of 8
  FakeActor a(*f.service, "a"), b(*f.service, "b"), c(*f.service, "c");
  const auto greeted = f.service->Open(a.MakeHello(), TransportKind::kGrpc, "", a.link);
  ASSERT_TRUE(greeted.ok());
  ASSERT_TRUE(b.Connect().ok());
  const Status refused = c.Connect();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << "who is about to be ready counts: " << refused;
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("no room for the 8 rows (env.rows) of one more actor beside those of 2"),
                    HasSubstr("raise it or lower env.rows")));
  RunStatus status;
  f.service->FillStatus(status);
  EXPECT_THAT(status.counters, Contains(FieldsAre("refused_full", 1u)));
  f.service->Lost(*greeted, absl::OkStatus());
  ASSERT_TRUE(c.Connect().ok()) << "the one that was not ready held nothing";
  f.service->Lost(b.session, absl::OkStatus());
  EXPECT_FALSE(a.Connect().ok()) << "b may come back until its lease ends";
  ASSERT_TRUE(b.Connect().ok());
  b.Update();
  EXPECT_EQ(b.groups.size(), 4u);
}

}  // namespace
}  // namespace millrace
