#include "kernels/net/fingerprint.h"

#include <xxhash.h>

#include <vector>

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/net/actor_critic.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {
constexpr uint64_t kSeed = 0x6d696c6c72616365ull;
constexpr int kRows = 7, kInputs = 37, kOutputs = 5;  // odd sizes, so that edges of blocks take part

// [-scale, scale), from integer arithmetic and exact conversions alone.
std::vector<float> Uniform(size_t n, uint64_t step, float scale) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const Philox4 words = PhiloxAt(kSeed, Purpose::kTest, static_cast<uint32_t>(i), step);
    values[i] = (2 * UniformFloat(words.v[0]) - 1) * scale;
  }
  return values;
}

class Digest {
 public:
  void Add(const void* data, size_t bytes) { hash_ = XXH3_64bits_withSeed(data, bytes, hash_); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

void AddFunctions(Digest& digest) {
  for (const float x : Uniform(256, 1, 12.0f)) {
    const SinCos angle = SinCos2Pi(Abs(x) * 0.08f);
    const float y[] = {Tanh(x),   Exp(x),   Log(Abs(x) + 1e-3f), Log1p(Abs(x)), Sqrt(Abs(x)),
                       angle.sin, angle.cos};
    digest.Add(y, sizeof(y));
  }
}

// A network of this kind, and what is sampled from its outputs.
void AddNetwork(Activation activation, bool shared, Digest& digest) {
  const ActorCritic net(ActorCriticSpec{.inputs = kInputs,
                                        .hidden = {33, 70},
                                        .activation = activation,
                                        .shared = shared,
                                        .outputs = kOutputs,
                                        .gaussian = true});
  const std::vector<float> parameters = Uniform(net.parameter_floats(), 2, 0.3f);
  const std::vector<float> x = Uniform(kRows * kInputs, 3, 2.0f);
  std::vector<float> packed(net.packed_floats());
  net.PackAll(parameters.data(), packed.data(), false);
  ActorCritic::Workspace w(net, kRows);
  net.Forward(parameters.data(), packed.data(), x.data(), kInputs, kRows, w);
  for (int r = 0; r < kRows; ++r) {
    digest.Add(w.logits + r * w.logits_ld, kOutputs * sizeof(float));
    digest.Add(w.value + r * w.value_ld, sizeof(float));
  }
  float log_prob[kRows], box[kRows * kOutputs];
  int32_t action[kRows];
  const int32_t nvec[] = {kOutputs};
  RunSerial<SampleCategorical>({.rows = kRows,
                                .logits = w.logits,
                                .ld = w.logits_ld,
                                .mask = nullptr,
                                .heads = 1,
                                .nvec = nvec,
                                .seed = kSeed,
                                .purpose = Purpose::kTest,
                                .first_row = 0,
                                .step = 4,
                                .deterministic = false,
                                .action = action,
                                .log_prob = log_prob});
  digest.Add(action, sizeof(action));
  digest.Add(log_prob, sizeof(log_prob));
  RunSerial<SampleGaussian>({.rows = kRows,
                             .mean = w.logits,
                             .ld = w.logits_ld,
                             .log_std = net.log_std(parameters.data()),
                             .dims = kOutputs,
                             .seed = kSeed,
                             .purpose = Purpose::kTest,
                             .first_row = 0,
                             .step = 5,
                             .deterministic = false,
                             .action = box,
                             .log_prob = log_prob});
  digest.Add(box, sizeof(box));
  digest.Add(log_prob, sizeof(log_prob));
}

}  // namespace

uint64_t KernelFingerprint() {
  Digest digest;
  AddFunctions(digest);
  AddNetwork(Activation::kTanh, false, digest);
  AddNetwork(Activation::kGelu, true, digest);
  return digest.value();
}

}  // namespace millrace
