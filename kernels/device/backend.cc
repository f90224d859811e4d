#include "kernels/device/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace millrace {
namespace {

constexpr const char* kLibrary = "libmillrace_cuda.so";
constexpr const char* kLibraryVariable = "MILLRACE_CUDA_LIBRARY";

std::string LoaderError() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

std::filesystem::path FolderOfProgram() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path() : program.parent_path();
}

StatusOr<const CudaBackend*> Load() {
  if (const char* named = std::getenv(kLibraryVariable); named != nullptr && *named != '\0') {
    auto backend = LoadCudaBackendFrom(named);
    if (backend.ok()) return backend;
    return Status(backend.status().code(),
                  absl::StrCat(backend.status().message(), " ($", kLibraryVariable, ")"));
  }
  std::vector<std::string> looked;
  if (const auto folder = FolderOfProgram(); !folder.empty()) {
    for (const auto& place : {folder / kLibrary, (folder / ".." / "lib" / kLibrary).lexically_normal()}) {
      std::error_code error;
      if (std::filesystem::exists(place, error)) return LoadCudaBackendFrom(place.string());
      looked.push_back(place.string());
    }
  }
  auto backend = LoadCudaBackendFrom(kLibrary);
  if (backend.ok() || absl::IsFailedPrecondition(backend.status())) return backend;
  return absl::NotFoundError(absl::StrCat(backend.status().message(), "; nor is it ",
                                          absl::StrJoin(looked, " or "),
                                          " (a build with MILLRACE_CUDA makes it)"));
}

// The driver's own library is asked by its C functions: their form has been the same since CUDA 2.
StatusOr<int> AskDriver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return absl::NotFoundError(absl::StrCat("no NVIDIA driver here: ", LoaderError()));
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr)
    return absl::UnavailableError("libcuda.so.1 lacks cuInit or cuDeviceGetCount");
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
  int code = init(0);
  int devices = 0;
  if (code == 0) code = count(&devices);
  if (code == kNoDevice) return 0;
  if (code != 0)
    return absl::UnavailableError(absl::StrCat("NVIDIA's driver does not start: CUDA error ", code));
  return devices;
}

StatusOr<std::unique_ptr<Device>> OpenCuda(int index, const DeviceOptions& options) {
  MILL_ASSIGN_OR_RETURN(const int devices, CountCudaDevices());
  if (devices == 0) return absl::NotFoundError("cuda: the driver reports no device");
  if (index >= devices) {
    return absl::NotFoundError(
        absl::StrCat("cuda:", index, ": there are ", devices, " devices, the last is cuda:", devices - 1));
  }
  MILL_ASSIGN_OR_RETURN(const CudaBackend* backend, LoadCudaBackend());
  return backend->make_device(index, options);
}

std::string DescribeCuda(int index) {
  const auto device = OpenCuda(index, {});
  if (!device.ok()) return absl::StrCat("cannot be used: ", device.status().message());
  const auto info = (*device)->Info();
  if (!info.ok()) return absl::StrCat("cannot be used: ", info.status().message());
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return absl::StrFormat("%s, %d multiprocessors, capability %d.%d, %.1f GiB (%.1f free)", info->name,
                         info->multiprocessors, info->capability / 10, info->capability % 10,
                         static_cast<double>(info->total_bytes) / kGiB,
                         static_cast<double>(info->free_bytes) / kGiB);
}

}  // namespace

StatusOr<int> CountCudaDevices() {
  static const StatusOr<int> devices = AskDriver();
  return devices;
}

StatusOr<const CudaBackend*> LoadCudaBackendFrom(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(absl::StrCat("the CUDA backend does not load: ", LoaderError()));
  const auto entry = reinterpret_cast<const CudaBackend* (*)()>(dlsym(library, "MillraceCudaBackend"));
  if (entry == nullptr) {
    const std::string why = LoaderError();
    dlclose(library);
    return absl::FailedPreconditionError(absl::StrCat(path, " is no CUDA backend of Millrace: ", why));
  }
  const CudaBackend* backend = entry();
  if (backend->abi != kCudaBackendAbi) {
    const uint32_t abi = backend->abi;
    dlclose(library);
    return absl::FailedPreconditionError(absl::StrCat(path,
                                                      " was built for another Millrace: its interface is ",
                                                      abi, ", this program's is ", kCudaBackendAbi));
  }
  return backend;
}

StatusOr<const CudaBackend*> LoadCudaBackend() {
  static const StatusOr<const CudaBackend*> backend = Load();
  return backend;
}

StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options) {
  if (name == "cpu") return MakeCpuDevice();
  absl::string_view rest(name.data(), name.size());
  int index = 0;
  if (absl::ConsumePrefix(&rest, "cuda") &&
      (rest.empty() || (absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &index) && index >= 0))) {
    return OpenCuda(index, options);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no such device: '", absl::string_view(name.data(), name.size()), "'; there are cpu, cuda and cuda:N"));
}

std::string DescribeDevices() {
  std::string text = "cpu     always there\n";
  const auto devices = CountCudaDevices();
  if (!devices.ok()) return absl::StrCat(text, "cuda    none: ", devices.status().message(), "\n");
  if (*devices == 0) return text + "cuda    none: NVIDIA's driver is here and reports no device\n";
  for (int i = 0; i < *devices; ++i) absl::StrAppend(&text, "cuda:", i, "  ", DescribeCuda(i), "\n");
  return text;
}

}  // namespace millrace
