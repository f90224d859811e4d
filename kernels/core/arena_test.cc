#include "kernels/core/arena.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#if defined(__has_feature)
#define MILL_HAS_FEATURE(x) __has_feature(x)
#else
#define MILL_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || MILL_HAS_FEATURE(address_sanitizer) || \
    MILL_HAS_FEATURE(thread_sanitizer)
#define MILL_SANITIZED 1
#else
#define MILL_SANITIZED 0
#endif

namespace millrace {
namespace {

TEST(Arena, TensorsAreAlignedZeroedAndApart) {
  Arena arena;
  const auto a = arena.Add("a", 3), b = arena.Add("b", 16), none = arena.Add("none", 0),
             c = arena.Add("c", 17);
  ASSERT_TRUE(arena.Commit().ok());
  EXPECT_EQ(arena.bytes(), (16 + 16 + 0 + 32) * sizeof(float));
  for (auto handle : {a, b, none, c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.At(handle)) % 64, 0u);
  EXPECT_EQ(arena.At(b), arena.At(a) + 16);
  EXPECT_EQ(arena.At(c), arena.At(b) + 16);
  for (size_t i = 0; i < arena.bytes() / sizeof(float); ++i) EXPECT_EQ(arena.At(a)[i], 0.0f);
  EXPECT_EQ(arena.elements(c), 17u);
  EXPECT_EQ(arena.tensors()[3].name, "c");
}

TEST(Arena, AnEmptyOneCommits) {
  Arena arena;
  EXPECT_TRUE(arena.Commit().ok());
  EXPECT_EQ(arena.bytes(), 0u);
}

TEST(Arena, NamesTheBytesThatItCannotHave) {
  if (MILL_SANITIZED) GTEST_SKIP() << "sanitizers end the process when an allocation is too large";
  Arena arena;
  (void)arena.Add("small", 10);
  (void)arena.Add("huge", size_t{1} << 60);
  const Status status = arena.Commit();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("4611686018427387968 bytes"));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("huge"));
  EXPECT_FALSE(arena.committed());
}

TEST(Arena, SizesThatOverflowAreAnErrorToo) {
  Arena arena;
  (void)arena.Add("a", SIZE_MAX / 8);
  (void)arena.Add("b", SIZE_MAX - 3);
  EXPECT_EQ(arena.Commit().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ArenaDeathTest, UseBeforeCommitIsABug) {
  Arena arena;
  const auto a = arena.Add("a", 1);
  EXPECT_DEATH((void)arena.At(a), "invariant broken");
}

}  // namespace
}  // namespace millrace
