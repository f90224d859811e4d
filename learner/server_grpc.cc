// Assembles the server: credentials, limits, services, health.
#include "learner/server_grpc.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/channel_grpc.h"
#include "common/text.h"
#include "learner/control_service_grpc.h"
#include "learner/status_service_grpc.h"
#include "learner/trajectory_service_grpc.h"
#include "learner/weights_service_grpc.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::array kServices = {"Trajectory", "Weights", "Status", "Control"};
constexpr int kMaxStreamsPerConnection = 64;
constexpr int kMaxBlockingThreads = 16;  // of Control's calls
constexpr int kMaxProbeBytes = 4096;

// Nothing but health: plugins that were registered for the whole process, such as reflection, stay out.
class WithoutPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

void SetCommonArguments(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // else two learners would share a port
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepaliveTime.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepaliveTimeout.count()));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             static_cast<int>(kKeepaliveTime.count() / 2));
}

// The address as bound. `builder` has its services.
StatusOr<std::unique_ptr<grpc::Server>> Listen(grpc::ServerBuilder& builder, HostPort& address) {
  MILL_RETURN_IF_ERROR(CheckCanListen(address));
  int port = 0;
  builder.AddListeningPort(FormatAddress(address), grpc::InsecureServerCredentials(), &port);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::InvalidArgumentError(Cat(FormatAddress(address), " can't be listened on"));
  }
  address.port = static_cast<uint16_t>(port);
  return server;
}

Status CheckReachable(const HostPort& address, bool insecure) {
  MILL_ASSIGN_OR_RETURN(const bool loopback, IsLoopback(address));
  if (loopback || insecure) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat(FormatAddress(address),
          " can be reached from other machines, and nothing would be encrypted or "
          "checked; listen on 127.0.0.1, or allow it with --insecure"));
}

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(const ServerOptions& options, TrajectoryService& service, ControlTarget& target)
      : weights_(service),
        trajectories_(service),
        trajectory_(service,
                    {options.run_id, options.program_version, options.unix_socket, options.no_socket_reason}),
        status_(target),
        control_(MakeControlServiceGrpc(target)) {}

  Status Start(const ServerOptions& options) {
    // Debian's abseil looks for lock cycles at every lock of gRPC's, which costs a fifth of small messages.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    MILL_ASSIGN_OR_RETURN(HostPort address, ParseAddress(options.listen));
    MILL_RETURN_IF_ERROR(CheckReachable(address, options.insecure));

    grpc::ServerBuilder builder;
    SetCommonArguments(builder);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_segment_bytes + kMaxControlBytes));
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
    builder.SetResourceQuota(grpc::ResourceQuota("control").SetMaxThreads(kMaxBlockingThreads));
    for (grpc::Service* service :
         {trajectory_.service(), weights_.service(), status_.service(), control_.get()}) {
      builder.RegisterService(service);
    }
    MILL_ASSIGN_OR_RETURN(server_, Listen(builder, address));
    address_ = FormatAddress(address);
    trajectories_.OnPublish([this](const WeightsPtr& weights) { weights_.Announce(weights); });
    if (!options.health_listen.empty()) MILL_RETURN_IF_ERROR(StartHealth(options.health_listen));
    for (const char* service : kServices) SetServing(service, true);
    return absl::OkStatus();
  }

  // Health's port may be on any address: it tells one bit, and Kubernetes' probes speak no TLS.
  Status StartHealth(const std::string& listen) {
    MILL_ASSIGN_OR_RETURN(HostPort address, ParseAddress(listen));
    grpc::ServerBuilder builder;
    SetCommonArguments(builder);
    builder.SetMaxReceiveMessageSize(kMaxProbeBytes);
    builder.SetOption(std::make_unique<WithoutPlugins>());
    builder.RegisterCallbackGenericService(&unimplemented_);  // a server must have some service of ours
    MILL_ASSIGN_OR_RETURN(health_, Listen(builder, address));
    health_address_ = FormatAddress(address);
    return absl::OkStatus();
  }

  void SetServing(const std::string& service, bool serving) {
    for (grpc::Server* server : {server_.get(), health_.get()}) {
      if (server == nullptr) continue;
      grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
      if (service.empty()) {
        health->SetServingStatus(serving);
      } else {
        health->SetServingStatus(Cat("millrace.v1.", service), serving);
      }
    }
  }

  void Shutdown(milliseconds grace) {
    if (server_ == nullptr) return;
    const auto deadline = steady_clock::now() + grace;
    SetServing("", false);
    trajectories_.OnPublish(nullptr);
    trajectory_.Close();
    weights_.Close();
    status_.Close();
    // What is left at the deadline is cancelled.
    static_cast<void>(trajectory_.WaitForNone(deadline) && weights_.WaitForNone(deadline) &&
                      status_.WaitForNone(deadline));
    const auto now = std::chrono::system_clock::now();
    const auto left = std::max(deadline - steady_clock::now(), steady_clock::duration::zero());
    server_->Shutdown(now + std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
    server_->Wait();
    // Cancelled calls end at once; until their last callback they use the services and what these lean on.
    constexpr std::chrono::seconds kPatience{30};
    const auto last = steady_clock::now() + kPatience;
    MILL_CHECK(trajectory_.WaitForNone(last) && weights_.WaitForNone(last) && status_.WaitForNone(last));
    if (health_ != nullptr) health_->Shutdown(now);
    server_.reset();
    health_.reset();
  }

  const std::string& address() const { return address_; }
  const std::string& health_address() const { return health_address_; }

 private:
  WeightsServiceGrpc weights_;
  TrajectoryService& trajectories_;
  TrajectoryServiceGrpc trajectory_;
  StatusServiceGrpc status_;
  const std::unique_ptr<grpc::Service> control_;
  grpc::CallbackGenericService unimplemented_;  // its answer to everything
  std::unique_ptr<grpc::Server> server_, health_;
  std::string address_, health_address_;
};

Status GrpcServer::Check(const std::string& listen, const std::string& health_listen, bool insecure) {
  MILL_ASSIGN_OR_RETURN(const HostPort address, ParseAddress(listen));
  MILL_RETURN_IF_ERROR(CheckReachable(address, insecure));
  MILL_RETURN_IF_ERROR(CheckCanListen(address));
  if (health_listen.empty()) return absl::OkStatus();
  MILL_ASSIGN_OR_RETURN(const HostPort health, ParseAddress(health_listen));
  return CheckCanListen(health);
}

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ServerOptions& options,
                                                        TrajectoryService& service, ControlTarget& target) {
  auto impl = std::make_unique<Impl>(options, service, target);
  const Status started = impl->Start(options);
  if (!started.ok()) {
    impl->Shutdown(milliseconds(0));
    return started;
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() {
  Shutdown(milliseconds(1000));
}

const std::string& GrpcServer::address() const {
  return impl_->address();
}
const std::string& GrpcServer::health_address() const {
  return impl_->health_address();
}
void GrpcServer::SetServing(const std::string& service, bool serving) {
  impl_->SetServing(service, serving);
}
void GrpcServer::Shutdown(milliseconds grace) {
  impl_->Shutdown(grace);
}

}  // namespace millrace
