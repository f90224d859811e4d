// SacStep: the gradient step of soft actor-critic (Haarnoja et al. 2018; for discrete actions Christodoulou
// 2019) on one batch, with all that it changes: the policy, its critics and their targets, the temperature,
// the optimizers. Station: train_step. Owner: SacLearner. Called from one thread, it spreads its work over
// the ThreadPool; a step allocates nothing.
//
// A step has two halves. Critics first: the target of each row by the present policy, the target critics and
// the present alpha; then the critics' losses, gradients, Adam, and their target's average in the same pass.
// Then, every policy_delay steps: the policy by the new critics, and alpha by the log-probs of the policy
// that acted in this step. The policy maximises the least critic, or with more critics than the target looks
// at their mean (Chen et al., "Randomized ensembled double Q-learning", 2021).
//
// Rows are cut into blocks that any thread takes; their results do not depend on the cut but for sums, which
// are added in the blocks' order. The critics' blocks go critic by critic, so that a thread has one critic's
// weights in its cache for all of them; each goes forward and back while its activations are there too. The
// policy's gradient goes through the least critic of each row alone, rows of one critic brought together.
// Gradients of weights are then cut over columns of the weights, each a
// chain over all rows. So the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/resource_usage.h"
#include "common/spec.h"
#include "common/status.h"
#include "kernels/core/arena.h"
#include "kernels/core/thread_pool.h"
#include "kernels/net/actor_critic.h"
#include "kernels/ops/adam.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/sac_loss.h"
#include "learner/replay/replay.h"

namespace millrace {

// The target entropy of discrete actions, over that of the uniform policy. Christodoulou's 0.98 asks for all
// but uniform choices: where those fail alpha grows, Q with it by the entropy's bonus, and the gaps between
// the choices' values with Q, so that the target is never reached. Xu et al., "Target entropy annealing for
// discrete soft actor-critic" (2021), lower it as training goes on; here it is low from the start.
inline constexpr double kSacDiscreteTarget = 0.6;

// Independent tasks that run beside the critics' updates in a step: the next batch's assembly.
class SideWork {
 public:
  virtual ~SideWork() = default;
  virtual int tasks() const = 0;
  virtual void Run(int task, int worker) = 0;
};

// Means over the batch.
struct SacStepResult {
  double critic_loss = 0, q = 0, q_abs_max = 0, target = 0, critic_norm = 0;
  bool policy_stepped = false;  // then:
  double actor_loss = 0, log_prob = 0, actor_norm = 0;
  double alpha = 0;  // that the step was taken with
  // The first tensor that is not finite; empty: all are. The half that it was found in was not stepped, nor
  // was a half after it.
  std::string bad;
};

class SacStep {
 public:
  // max_batch: the most rows of a batch. InvalidArgument for actions that SAC does not cover, a target
  // entropy that no policy has or a network that is too large; ResourceExhausted with the figures, before
  // anything large is allocated, when `available` bytes do not suffice.
  static StatusOr<std::unique_ptr<SacStep>> Make(const RunOptions& options, const EnvSpec& spec,
                                                 int obs_width, int max_batch, ThreadPool& threads,
                                                 uint64_t available = AvailableMemory());
  ~SacStep();

  // Step number `step`, from 0, which keys its noise. batch.x and next_x: [rows, critic_inputs()]; the action
  // columns of next_x are written. td_abs: [rows] written.
  SacStepResult Run(uint64_t step, const ReplayBatch& batch, float* td_abs, SideWork* side = nullptr);

  const ActorCritic& actor() const { return actor_; }
  const Mlp& critics() const { return critics_; }
  const float* actor_parameters() const { return policy_.w; }
  const float* actor_packed() const { return policy_.packed; }
  int critic_inputs() const { return critics_.spec().inputs; }
  double alpha() const;
  double target_entropy() const { return target_entropy_; }
  // At most so large from now on; one that is no number is then that large.
  void LimitAlpha(double most);
  void SetLearningRates(const SacSection& sac);
  // Multiply-adds of one step on one row, the policy's half counted once in policy_delay.
  double MacsPerRow() const;
  // Bytes of activations and gradients of activations.
  size_t activation_bytes() const;
  // Seconds in each part of all steps since it was made.
  enum Part { kCriticRows, kCriticWeights, kCriticAdam, kPolicyRows, kPolicyWeights, kPolicyAdam, kParts };
  const std::array<double, kParts>& seconds() const { return seconds_; }

  // What Run changes, for checkpoints. After a change from outside: Loaded.
  struct Tensor {
    std::string name;
    int rows, cols;
    float* data;
    bool warm;  // a new run may begin with it: not the optimizer's
  };
  std::vector<Tensor> State();
  int64_t* counters() { return counters_; }  // [kCounters]
  static constexpr int kCounters = 2;        // steps of the critics' and of the policy's optimizer
  // Takes over State's tensors; a fixed alpha stays what options say.
  void Loaded();

 private:
  // A network's flat buffers, [parameter_floats] each, and its packs.
  struct Flat {
    float *w = nullptr, *g = nullptr, *m = nullptr, *v = nullptr, *packed = nullptr;
    float *target = nullptr, *target_packed = nullptr;  // critics only
    double learning_rate = 0;
    int64_t* steps = nullptr;
    AdamStep adam;
  };
  struct Worker;

  SacStep(const RunOptions& options, const EnvSpec& spec, int obs_width, int max_batch, ThreadPool& threads);
  Status Allocate(uint64_t available);
  uint64_t BytesOutsideArena() const;
  float StartingLogAlpha() const;
  void Initialize();
  Mlp::Rows RowsOf(int block) const;
  void DrawSubset();
  int SubsetSize() const { return std::min<int>(static_cast<int>(options_.sac.critic_subset), towers()); }
  int towers() const { return static_cast<int>(critics_.towers()); }
  template <class F>
  void EachTowersBlock(const F& f);
  template <class F>
  void EachBlock(bool small, const F& f);
  void NextPolicy(int block, Worker& worker);
  void TargetValues(size_t tower, int block, Worker& worker);
  void TargetOf(Mlp::Rows rows);
  CriticLoss::Params CriticLossOf(int block);
  void CriticUpdate(size_t tower, int block, Worker& worker);
  void CopyOutput(size_t tower, Mlp::Workspace& w, Mlp::Rows from, float* to, Mlp::Rows rows) const;
  void PolicyForward(int block);
  void PolicyValues(size_t tower, int block);
  void PolicyLosses(int block);
  void ListLeast();
  void ActionGradients(size_t tower, int block);
  void LeastActionGradients(size_t tower, int block, Worker& worker);
  void PolicyBackward(int block);
  void RunCriticRows(SideWork* side);
  void RunPolicyRows();
  void DiscretePolicy(int block, Mlp::Rows rows);
  void SampleActions(const float* logits, Mlp::Rows rows, Purpose purpose, float* action, int action_ld,
                     float* noise) const;
  void RunPolicyHalf(SacStepResult& result);
  void EndPart(Part part);
  void StepTemperature();
  double Gradients(const Mlp& net, Flat& flat, Mlp::Workspace& w, const float* x, int ldx);
  void Descend(const Mlp& net, Flat& flat, float tau);
  std::string BadBatch() const;
  std::string BadCriticHalf() const;
  std::string BadPolicy() const;
  std::string BadGradient(const char* of, const std::vector<ParameterTensor>& tensors,
                          const float* gradients) const;

  const RunOptions options_;
  const EnvSpec spec_;
  ThreadPool& threads_;
  const ActorCritic actor_;
  const Mlp critics_;
  const int obs_width_, max_batch_, action_dims_;  // action_dims_: of a Box, else 0
  const int columns_;                              // of a critic: 1, or the number of discrete actions
  const size_t q_stride_;                          // from one critic's values to the next one's
  const double target_entropy_;
  const bool only_least_;  // the policy's gradient goes through the least critic of a row alone

  Arena arena_;
  Flat policy_, critic_;
  float* temperature_ = nullptr;  // log_alpha, its gradient, its Adam moments
  AdamStep temperature_adam_;
  float *q_ = nullptr, *dq_ = nullptr;                 // [critics, max_batch, columns]
  float* next_q_ = nullptr;                            // the same, of the targets' critics
  float *y_ = nullptr, *log_prob_ = nullptr;           // [max_batch]
  float* noise_ = nullptr;                             // [max_batch, action_dims]
  float* daction_ = nullptr;                           // [critics, max_batch, action_dims]
  float* policy_x_ = nullptr;                          // [max_batch, critic_inputs]
  float *softmax_ = nullptr, *next_logits_ = nullptr;  // [max_batch, columns] discrete only
  std::unique_ptr<Mlp::Workspace> policy_workspace_, critic_workspace_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<SacCriticStats> critic_stats_;  // [blocks]
  std::vector<SacPolicyStats> policy_stats_;  // [blocks]
  std::vector<double> squares_;               // [tasks of a network's gradients]
  std::vector<int32_t> least_;                // [critics, max_batch] rows whose least critic is this one, and
  std::vector<int> least_rows_;               // [critics] how many
  std::vector<int32_t> order_, all_;  // [critics]; the first critic_subset are in the target; 0, 1 ...
  int64_t counters_[kCounters] = {0, 0};
  std::array<double, kParts> seconds_{};
  std::chrono::steady_clock::time_point part_began_;

  // Of the step that runs.
  const ReplayBatch* batch_ = nullptr;
  float* td_abs_ = nullptr;
  uint64_t step_ = 0;
  int blocks_ = 0;
};

}  // namespace millrace
