// How fast a device runs the ops and products at the sizes of a real update, beside what its memory does:
// bytes that must move (inputs once, outputs once) a second, as a share of a copy within the device; and for
// products FLOP a second. Medians of single launches, and of a captured graph of ten for what a launch costs.
//
//   device_benchmark [--device cuda|cpu] [--seconds S] [NAME]      NAME: only cases whose name contains it
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/device/backend.h"
#include "kernels/testing/parity.h"

namespace millrace {
namespace {

struct Arguments {
  std::string device = "cuda";
  std::string name;
  double seconds = 0.15;  // a case
};

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Median seconds of `work` on the stream, by events around each; for about so many seconds.
template <class F>
StatusOr<double> Time(Device& device, Stream& stream, double seconds, F work) {
  MILL_ASSIGN_OR_RETURN(const auto begin, device.NewEvent());
  MILL_ASSIGN_OR_RETURN(const auto end, device.NewEvent());
  std::vector<double> times;
  double total = 0.0;
  for (int i = 0; i < 3 || (total < seconds && i < 2000); ++i) {
    MILL_RETURN_IF_ERROR(stream.Record(*begin));
    MILL_RETURN_IF_ERROR(work());
    MILL_RETURN_IF_ERROR(stream.Record(*end));
    MILL_RETURN_IF_ERROR(end->Synchronize());
    MILL_ASSIGN_OR_RETURN(const double took, end->SecondsSince(*begin));
    if (i > 0) times.push_back(took);  // the first one warms up
    total += took;
  }
  return Median(std::move(times));
}

// Bytes read and written a second by an op that only copies.
StatusOr<double> CopyRate(Device& device, Stream& stream, double seconds) {
  constexpr int kRows = 1 << 14, kCols = 1 << 10;
  constexpr size_t kBytes = size_t{kRows} * kCols * sizeof(float);
  MILL_ASSIGN_OR_RETURN(const auto from, device.Allocate(kBytes));
  MILL_ASSIGN_OR_RETURN(const auto to, device.Allocate(kBytes));
  MILL_RETURN_IF_ERROR(stream.Zero(from->data(), kBytes));
  auto* w = static_cast<float*>(from->data());
  auto* packed = static_cast<float*>(to->data());
  MILL_ASSIGN_OR_RETURN(const double took, Time(device, stream, seconds, [&] {
                          return device.kernels().Pack(stream, w, kCols, kRows, kCols, packed);
                        }));
  return 2.0 * static_cast<double>(kBytes) / took;
}

Status Measure(const ParityCase& c, Device& device, Stream& stream, double seconds, double copy_rate) {
  const auto& host = c.image.bytes();
  MILL_ASSIGN_OR_RETURN(const auto memory, device.Allocate(host.size()));
  MILL_ASSIGN_OR_RETURN(const auto work, device.Allocate(kWorkspaceBytes));
  const ImageView view{static_cast<std::byte*>(memory->data())};
  const Workspace workspace{work->data(), work->bytes()};
  MILL_RETURN_IF_ERROR(stream.CopyToDevice(view.base, host.data(), host.size()));
  const auto once = [&] { return c.run(device.kernels(), stream, view, workspace); };
  MILL_ASSIGN_OR_RETURN(const double single, Time(device, stream, seconds, once));
  constexpr int kInGraph = 10;
  MILL_RETURN_IF_ERROR(stream.BeginCapture());
  Status submitted;
  for (int i = 0; i < kInGraph; ++i) submitted.Update(once());
  auto ended = stream.EndCapture();
  MILL_RETURN_IF_ERROR(submitted);
  MILL_ASSIGN_OR_RETURN(const auto graph, std::move(ended));
  MILL_ASSIGN_OR_RETURN(const double ten,
                        Time(device, stream, seconds, [&] { return stream.Launch(*graph); }));
  const double each = ten / kInGraph;
  const double rate = static_cast<double>(c.image.Traffic()) / each;
  std::printf("%-62s %9.1f %9.1f %9.1f %6.1f%%", c.name.c_str(), 1e6 * single, 1e6 * each, 1e-9 * rate,
              100.0 * rate / copy_rate);
  if (c.flops > 0.0) std::printf(" %8.2f TFLOP/s", 1e-12 * c.flops / each);
  std::printf("\n");
  return absl::OkStatus();
}

Status Run(const Arguments& arguments) {
  MILL_ASSIGN_OR_RETURN(const auto device, OpenDevice(arguments.device));
  MILL_ASSIGN_OR_RETURN(const DeviceInfo info, device->Info());
  MILL_ASSIGN_OR_RETURN(const auto stream, device->NewStream());
  MILL_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(*device, *stream, arguments.seconds));
  std::printf("%s: a copy within the device moves %.1f GB/s\n", info.name.c_str(), 1e-9 * copy_rate);
  std::printf("%-62s %9s %9s %9s %7s\n", "", "us alone", "in graph", "GB/s", "of copy");
  size_t measured = 0;
  for (const ParityCase& c : LargeCases()) {
    if (c.name.find(arguments.name) == std::string::npos) continue;
    MILL_RETURN_IF_ERROR(Measure(c, *device, *stream, arguments.seconds, copy_rate));
    ++measured;
  }
  if (measured == 0) return absl::NotFoundError("no case's name contains '" + arguments.name + "'");
  return absl::OkStatus();
}

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--device" && has_value) {
      a.device = argv[++i];
    } else if (word == "--seconds" && has_value) {
      a.seconds = std::atof(argv[++i]);
    } else if (word.rfind("--", 0) == 0) {
      return absl::InvalidArgumentError("device_benchmark [--device cuda|cpu] [--seconds S] [NAME]");
    } else {
      a.name = word;
    }
  }
  return a;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const auto arguments = millrace::Parse(argc, argv);
  const millrace::Status status = arguments.ok() ? millrace::Run(*arguments) : arguments.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "device_benchmark: %s\n", std::string(status.message()).c_str());
  return arguments.ok() ? 3 : 2;
}
