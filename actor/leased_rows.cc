#include "actor/leased_rows.h"

#include "common/text.h"

namespace millrace {
namespace {
SegmentLayout LayoutFor(const RowGroup& group, int horizon) {
  const EnvSpec& spec = group.spec();
  return SegmentLayout(spec, horizon, group.rows(),
                       SegmentLayout::FinalCapacity(spec.max_episode_steps, horizon, group.rows()),
                       group.row_state_bytes());
}
}  // namespace

LeasedRows::LeasedRows(std::unique_ptr<RowGroup> group, uint64_t seed, int horizon)
    : group_(std::move(group)),
      layout_(LayoutFor(*group_, horizon)),
      carry_layout_(group_->spec(), 0, group_->rows(), 0),
      seed_(seed) {}

StatusOr<std::unique_ptr<LeasedRows>> LeasedRows::Make(const EnvSection& env, uint64_t seed,
                                                       uint32_t first_row, int rows, int horizon) {
  MILL_ASSIGN_OR_RETURN(auto group, RowGroup::Make(env, seed, first_row, rows));
  auto made = std::unique_ptr<LeasedRows>(new LeasedRows(std::move(group), seed, horizon));
  MILL_ASSIGN_OR_RETURN(made->carry_memory_, AlignedBytes::Make(made->carry_layout_.bytes()));
  made->carry_ = SegmentView(&made->carry_layout_, made->carry_memory_.data());
  return made;
}

Status LeasedRows::Begin(std::string_view state, uint64_t next_step) {
  const size_t bytes = group_->row_state_bytes() * static_cast<size_t>(group_->rows());
  if (!state.empty() && state.size() != bytes) {
    return absl::InvalidArgumentError(Cat("the state of rows ", group_->first_row(), " .. ",
                                          group_->first_row() + static_cast<uint32_t>(group_->rows()) - 1,
                                          " has ", state.size(), " bytes; this environment's has ", bytes));
  }
  next_step_ = next_step;
  group_->ClearFault();
  if (state.empty()) {
    group_->Reset(carry_, 0);
  } else {
    group_->LoadRows(carry_, 0, reinterpret_cast<const std::byte*>(state.data()));
  }
  return absl::OkStatus();
}

SegmentCollector::Result LeasedRows::Collect(SegmentCollector& collector, const SegmentView& segment,
                                             absl::FunctionRef<PolicyView()> policy, std::string* fault) {
  const int steps = layout_.steps();
  const SegmentCollector::Result result = collector.Collect(
      *group_, segment, carry_, {.seed = seed_, .first_step = next_step_, .deterministic = false}, policy);
  fault->clear();
  if (!result.whole) return result;
  group_->BeginSegment(carry_, segment);
  group_->SaveRows(segment, steps, segment.snapshot());
  next_step_ += static_cast<uint64_t>(steps);
  if (group_->fault() != nullptr) {
    *fault = std::string(group_->fault()->ToStatus().message());
    group_->ClearFault();
  }
  return result;
}

}  // namespace millrace
