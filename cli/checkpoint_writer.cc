#include "cli/checkpoint_writer.h"

namespace millrace {

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::Start(Job job) {
  MILL_CHECK(!busy());
  job_ = std::move(job);
  done_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this] {
    Write();
    done_.store(true, std::memory_order_release);
  });
}

void CheckpointWriter::Write() {
  StatusOr<std::string> path =
      job_.best ? store_.SaveBest(job_.update, job_.copy.data) : store_.Save(job_.update, job_.copy.data);
  const Status kept = path.ok() && !job_.best ? store_.Keep(job_.keep) : path.status();
  if (kept.ok()) {
    result_ = Written{*std::move(path), job_.update, job_.best, job_.at};
  } else {
    result_ = kept;
  }
}

std::optional<StatusOr<CheckpointWriter::Written>> CheckpointWriter::Take(bool wait) {
  if (!busy() || (!wait && !done_.load(std::memory_order_acquire))) return std::nullopt;
  thread_.join();
  job_.copy = {};
  return std::move(result_);
}

}  // namespace millrace
