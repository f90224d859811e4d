#include "kernels/testing/parity.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

constexpr std::byte kUnwritten{0xAB};
constexpr size_t kAlignment = 64;

// Differs, in the sense of the tensor's kind; NaNs are one value, for hardware makes them of different bits.
template <class T>
bool Differs(T want, T got, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) != std::isnan(got);
  if (tolerance == 0.0 || std::isinf(want)) return std::memcmp(&want, &got, sizeof(T)) != 0;
  return !(std::abs(double{got} - double{want}) <= tolerance * (1.0 + std::abs(double{want})));
}

struct Difference {
  size_t count = 0, first = 0;
  std::string text;  // of the first
};

template <class T>
void CompareNumbers(const std::byte* want, const std::byte* got, size_t n, double tolerance,
                    Difference* out) {
  for (size_t i = 0; i < n; ++i) {
    T a, b;
    std::memcpy(&a, want + i * sizeof(T), sizeof(T));
    std::memcpy(&b, got + i * sizeof(T), sizeof(T));
    if (!Differs(a, b, tolerance)) continue;
    if (out->count++ == 0) {
      out->first = i;
      out->text = absl::StrFormat("%.9g, reference %.9g", double{b}, double{a});
    }
  }
}

void CompareBytes(const std::byte* want, const std::byte* got, size_t n, Difference* out) {
  for (size_t i = 0; i < n; ++i) {
    if (want[i] == got[i]) continue;
    if (out->count++ == 0) {
      out->first = i;
      out->text = absl::StrCat(static_cast<int>(got[i]), ", reference ", static_cast<int>(want[i]));
    }
  }
}

// Word i of a tensor's stream of random numbers.
class Words {
 public:
  Words(uint64_t seed, size_t tensor) : seed_(seed), tensor_(static_cast<uint32_t>(tensor)) {}
  uint32_t operator()(size_t i) {
    if (i % 4 == 0) block_ = PhiloxAt(seed_, Purpose::kTest, tensor_, i / 4);
    return block_.v[i % 4];
  }

 private:
  uint64_t seed_;
  uint32_t tensor_;
  Philox4 block_{};
};

}  // namespace

size_t Image::AddBytes(const char* name, Kind kind, Use use, size_t bytes) {
  const size_t offset = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment + misalign_;
  misalign_ = 0;
  tensors_.push_back({name, kind, use, offset, bytes, 0.0});
  bytes_.resize(offset + bytes + kAlignment, kUnwritten);  // a margin behind each, too
  return offset;
}

Slot<float> Image::Random(const char* name, size_t n, float lo, float hi, Use use) {
  const Slot<float> slot = Add<float>(name, n, use);
  Words words(seed_, tensors_.size());
  float* x = Host(slot);
  for (size_t i = 0; i < n; ++i) {
    x[i] = lo + (hi - lo) * UniformFloat(words(i));
  }
  return slot;
}

Slot<int32_t> Image::Ints(const char* name, size_t n, int lo, int hi) {
  const Slot<int32_t> slot = Add<int32_t>(name, n, Use::kInput);
  Words words(seed_, tensors_.size());
  int32_t* x = Host(slot);
  for (size_t i = 0; i < n; ++i) {
    x[i] = lo + static_cast<int32_t>(words(i) % static_cast<uint32_t>(hi - lo));
  }
  return slot;
}

Slot<uint8_t> Image::Flags(const char* name, size_t n, double p) {
  const Slot<uint8_t> slot = Add<uint8_t>(name, n, Use::kInput);
  Words words(seed_, tensors_.size());
  uint8_t* x = Host(slot);
  for (size_t i = 0; i < n; ++i) {
    x[i] = double{UniformFloat(words(i))} < p ? 1 : 0;
  }
  return slot;
}

size_t Image::Traffic() const {
  size_t bytes = 0;
  for (const Tensor& t : tensors_)
    bytes += t.bytes * (t.use == Use::kBoth ? 2 : t.use == Use::kScratch ? 0 : 1);
  return bytes;
}

Status Image::Compare(const std::vector<std::byte>& reference, const std::vector<std::byte>& got) const {
  MILL_CHECK(reference.size() == bytes_.size() && got.size() == bytes_.size());
  size_t end = 0;
  for (const Tensor& t : tensors_) {
    Difference between;
    CompareBytes(reference.data() + end, got.data() + end, t.offset - end, &between);
    if (between.count != 0)
      return absl::DataLossError(absl::StrCat("written outside a tensor, before ", t.name));
    end = t.offset + t.bytes;
    if (t.use == Use::kScratch) continue;
    const std::byte* want = reference.data() + t.offset;
    const std::byte* have = got.data() + t.offset;
    Difference d;
    if (t.kind == Kind::kF32) {
      CompareNumbers<float>(want, have, t.bytes / sizeof(float), t.tolerance, &d);
    } else if (t.kind == Kind::kF64) {
      CompareNumbers<double>(want, have, t.bytes / sizeof(double), t.tolerance, &d);
    } else {
      CompareBytes(want, have, t.bytes, &d);
    }
    if (d.count == 0) continue;
    return absl::DataLossError(absl::StrCat(t.name, "[", d.first, "] is ", d.text, "; ", d.count, " differ"));
  }
  Difference behind;
  CompareBytes(reference.data() + end, got.data() + end, bytes_.size() - end, &behind);
  return behind.count == 0 ? absl::OkStatus() : absl::DataLossError("written behind the last tensor");
}

StatusOr<std::vector<std::byte>> RunCase(const ParityCase& c, Device& device, Stream& stream, bool graph) {
  const std::vector<std::byte>& host = c.image.bytes();
  MILL_ASSIGN_OR_RETURN(const auto memory, device.Allocate(host.size()));
  MILL_ASSIGN_OR_RETURN(const auto work, device.Allocate(kWorkspaceBytes));
  const ImageView view{static_cast<std::byte*>(memory->data())};
  const Workspace workspace{work->data(), work->bytes()};
  MILL_RETURN_IF_ERROR(stream.CopyToDevice(view.base, host.data(), host.size()));
  std::unique_ptr<Graph> captured;  // lives until the stream has run it
  if (graph) {
    MILL_RETURN_IF_ERROR(stream.BeginCapture());
    const Status submitted = c.run(device.kernels(), stream, view, workspace);
    auto ended = stream.EndCapture();
    MILL_RETURN_IF_ERROR(submitted);
    MILL_ASSIGN_OR_RETURN(captured, std::move(ended));
    MILL_RETURN_IF_ERROR(stream.Launch(*captured));
  } else {
    MILL_RETURN_IF_ERROR(c.run(device.kernels(), stream, view, workspace));
  }
  std::vector<std::byte> got(host.size());
  MILL_RETURN_IF_ERROR(stream.CopyToHost(got.data(), view.base, got.size()));
  MILL_RETURN_IF_ERROR(stream.Synchronize());
  return got;
}

Status RunParity(const ParityCase& c, Device& device) {
  std::vector<std::byte> reference = c.image.bytes();
  c.reference(ImageView{reference.data()});
  MILL_ASSIGN_OR_RETURN(const auto stream, device.NewStream());
  for (const bool graph : {false, true}) {
    const auto got = RunCase(c, device, *stream, graph);
    const Status status = got.ok() ? c.image.Compare(reference, *got) : got.status();
    if (!status.ok()) {
      return Status(status.code(),
                    absl::StrCat(c.name, graph ? " (as a graph)" : "", ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
