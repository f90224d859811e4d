#include "common/rpc/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
constexpr uint64_t kPlenty = uint64_t{1} << 30;

TEST(SharedRing, BothEndsSeeTheSameMemory) {
  const auto made = SharedRing::Make(3, 5000, kPlenty);
  ASSERT_TRUE(made.ok()) << made.status();
  SharedRing& ours = **made;
  EXPECT_EQ(ours.slots(), 3u);
  EXPECT_EQ(ours.stride(), 8192u);
  UniqueFd fd = ours.Descriptor();
  ASSERT_TRUE(fd);

  const auto mapped = SharedRing::Map(std::move(fd), 3, ours.stride());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  SharedRing& theirs = **mapped;
  ASSERT_NE(theirs.Slot(2), ours.Slot(2));
  std::memset(theirs.Slot(2), 7, 5000);
  EXPECT_EQ(ours.Slot(2)[4999], std::byte{7});
  EXPECT_EQ(ours.Slot(1)[0], std::byte{0});
  EXPECT_EQ(ours.UntouchedBytes(), 3u * 4096) << "two pages were written there, one was read here";
  EXPECT_FALSE(theirs.Descriptor());
  EXPECT_EQ(ours.Slot(2) - ours.Slot(0), 2 * 8192);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(theirs.Slot(1)) % 4096, 0u);
}

TEST(SharedRing, SlotsOutOfRange) {
  const auto ring = SharedRing::Make(2, 1, kPlenty);
  ASSERT_TRUE(ring.ok());
  for (const int32_t slot : {-1, 2, INT32_MAX, INT32_MIN}) EXPECT_EQ((*ring)->Slot(slot), nullptr) << slot;
}

TEST(SharedRing, ItsSizeCannotChange) {
  const auto ring = SharedRing::Make(2, 4096, kPlenty);
  ASSERT_TRUE(ring.ok());
  const UniqueFd fd = (*ring)->Descriptor();
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(fd.get(), 1 << 20), 0);
}

TEST(SharedRing, MemoryIsAskedForFirst) {
  EXPECT_TRUE(SharedRing::Make(4, 1 << 20, 4 << 20).ok());
  const Status short_of = SharedRing::Make(4, 1 << 20, (4 << 20) - 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(short_of)) << short_of;
  EXPECT_THAT(std::string(short_of.message()), HasSubstr("4 slots of 1048576 bytes needs 4 MiB"));
  EXPECT_TRUE(absl::IsInvalidArgument(SharedRing::Make(0, 1, kPlenty).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SharedRing::Make(1, 0, kPlenty).status()));
  EXPECT_FALSE(SharedRing::Make(UINT32_MAX, SIZE_MAX, UINT64_MAX).ok());
  EXPECT_FALSE(SharedRing::Make(1 << 30, SIZE_MAX / 4, UINT64_MAX).ok());
}

TEST(SharedRing, KnowsWhatWasNeverTouched) {
  const auto ring = SharedRing::Make(4, 1 << 20, kPlenty);
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ((*ring)->UntouchedBytes(), uint64_t{4} << 20);
  std::memset((*ring)->Slot(1), 1, 1 << 20);
  EXPECT_EQ((*ring)->UntouchedBytes(), uint64_t{3} << 20);
}

TEST(SharedRing, MapTrustsNobody) {
  const auto memory = [](int flags, off_t bytes, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | static_cast<unsigned>(flags)));
    EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), flags == 0 ? -1 : 0);
    return fd;
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto refusal = [](UniqueFd fd, uint32_t slots, uint64_t stride) {
    const Status status = SharedRing::Map(std::move(fd), slots, stride).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_TRUE(SharedRing::Map(memory(MFD_ALLOW_SEALING, 8192, kAll), 2, 4096).ok());
  EXPECT_THAT(refusal(memory(MFD_ALLOW_SEALING, 8192, kAll & ~F_SEAL_SHRINK), 2, 4096), HasSubstr("sealed"));
  EXPECT_THAT(refusal(memory(0, 8192, 0), 2, 4096), HasSubstr("sealed"));
  EXPECT_THAT(refusal(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 2, 4096), HasSubstr("sealed"));
  EXPECT_THAT(refusal(memory(MFD_ALLOW_SEALING, 8192, kAll), 3, 4096), HasSubstr("8192 bytes came"));
  EXPECT_THAT(refusal(UniqueFd(), 2, 4096), HasSubstr("no descriptor"));
  EXPECT_THAT(refusal(memory(MFD_ALLOW_SEALING, 8192, kAll), 2, 4095), HasSubstr("can't be"));
  EXPECT_THAT(refusal(memory(MFD_ALLOW_SEALING, 8192, kAll), UINT32_MAX, uint64_t{1} << 63),
              HasSubstr("can't"));
  EXPECT_THAT(refusal(memory(MFD_ALLOW_SEALING, 8192, kAll), 0, 0), HasSubstr("can't be"));
}

}  // namespace
}  // namespace millrace
