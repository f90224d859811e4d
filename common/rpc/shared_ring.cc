#include "common/rpc/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "common/text.h"

namespace millrace {
namespace {

constexpr uint64_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// Far beyond any machine, and far from where sums would overflow.
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;

Status MemoryError(int error, std::string_view what) {
  return absl::ResourceExhaustedError(Cat(what, ": ", std::strerror(error)));
}

StatusOr<std::byte*> MapAll(int fd, uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return MemoryError(errno, Cat("cannot map a ring of ", bytes, " bytes"));
  return static_cast<std::byte*>(base);
}

std::string Mib(uint64_t bytes) {
  return Cat((bytes + (uint64_t{1} << 20) - 1) >> 20, " MiB");
}

}  // namespace

StatusOr<std::unique_ptr<SharedRing>> SharedRing::Make(uint32_t slots, size_t bytes, uint64_t available) {
  if (slots == 0 || bytes == 0 || bytes > kMaxBytes || slots > kMaxBytes / (bytes + kPage) ||
      slots > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(Cat("a ring of ", slots, " slots of ", bytes, " bytes can't be made"));
  }
  const uint64_t stride = (bytes + kPage - 1) / kPage * kPage;
  if (slots * stride > available) {
    return absl::ResourceExhaustedError(
        Cat("a ring of ", slots, " slots of ", bytes, " bytes needs ", Mib(slots * stride), ", but only ",
            Mib(available), " of memory are free here (MemAvailable, and the cgroup's limit)"));
  }
  UniqueFd fd(::memfd_create("millrace-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return MemoryError(errno, "cannot make shared memory");
  if (::ftruncate(fd.get(), static_cast<off_t>(slots * stride)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return MemoryError(errno, "cannot size and seal shared memory");
  }
  MILL_ASSIGN_OR_RETURN(std::byte* const base, MapAll(fd.get(), slots * stride));
  return std::unique_ptr<SharedRing>(new SharedRing(std::move(fd), base, slots, stride));
}

StatusOr<std::unique_ptr<SharedRing>> SharedRing::Map(UniqueFd fd, uint32_t slots, uint64_t stride) {
  if (slots == 0 || slots > static_cast<uint32_t>(std::numeric_limits<int32_t>::max()) || stride == 0 ||
      stride % kPage != 0 || stride > kMaxBytes / slots) {
    return absl::InvalidArgumentError(
        Cat("ring: ", slots, " slots at a stride of ", stride, " bytes can't be"));
  }
  if (!fd) return absl::InvalidArgumentError("ring: no descriptor came with it");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError("ring: its memory is not sealed, so it could vanish while in use");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return MemoryError(errno, "ring: cannot tell its size");
  if (static_cast<uint64_t>(info.st_size) != slots * stride) {
    return absl::InvalidArgumentError(Cat("ring: ", info.st_size, " bytes came where ", slots,
                                          " slots at a stride of ", stride, " were announced"));
  }
  MILL_ASSIGN_OR_RETURN(std::byte* const base, MapAll(fd.get(), slots * stride));
  return std::unique_ptr<SharedRing>(new SharedRing(UniqueFd(), base, slots, stride));
}

SharedRing::~SharedRing() {
  ::munmap(base_, bytes());
}

UniqueFd SharedRing::Descriptor() const {
  return fd_ ? UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)) : UniqueFd();
}

// A page of a memfd is allocated when it is first touched, by whichever process.
uint64_t SharedRing::UntouchedBytes() const {
  constexpr uint64_t kUnit = 512;  // of st_blocks
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return bytes();
  return bytes() - std::min(bytes(), static_cast<uint64_t>(info.st_blocks) * kUnit);
}

}  // namespace millrace
