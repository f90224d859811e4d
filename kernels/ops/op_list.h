// The list of all ops: one line here gives an op its number, its name, its place in both backends' tables and
// its duty to have a parity case (parity_test fails without one). Station: device backends and tests. Plain
// constants; any thread.
#pragma once

#include <cstdint>

#define MILL_OPS(X)      \
  X(ActionLogProb)       \
  X(ActivationGrad)      \
  X(Adam)                \
  X(AddColumnSums)       \
  X(ApplyActivation)     \
  X(BatchMoments)        \
  X(ClipGlobalNorm)      \
  X(ColumnSums)          \
  X(CriticLoss)          \
  X(DiscretePolicyLoss)  \
  X(DiscreteSacTarget)   \
  X(FillPermutation)     \
  X(Gae)                 \
  X(GatherRows)          \
  X(GradReduce)          \
  X(LayerNorm)           \
  X(LayerNormBackward)   \
  X(LayerNormParamGrad)  \
  X(Moments)             \
  X(Normalize)           \
  X(PolicyQ)             \
  X(PpoLoss)             \
  X(SacTarget)           \
  X(SampleCategorical)   \
  X(SampleGaussian)      \
  X(SampleSquashed)      \
  X(SquashedBackward)    \
  X(TemperatureGradient) \
  X(Vtrace)

namespace millrace {

enum class OpId : uint8_t {
#define MILL_OP_ID(name) k##name,
  MILL_OPS(MILL_OP_ID)
#undef MILL_OP_ID
};

inline constexpr const char* kOpNames[] = {
#define MILL_OP_NAME(name) #name,
    MILL_OPS(MILL_OP_NAME)
#undef MILL_OP_NAME
};
inline constexpr int kOpCount = static_cast<int>(sizeof(kOpNames) / sizeof(kOpNames[0]));
inline const char* NameOf(OpId op) {
  return kOpNames[static_cast<int>(op)];
}

// kOpId<Gae> is OpId::kGae.
template <class Op>
inline constexpr OpId kOpId = Op::no_such_op;
#define MILL_OP_OF(name) \
  struct name;           \
  template <>            \
  inline constexpr OpId kOpId<name> = OpId::k##name;
MILL_OPS(MILL_OP_OF)
#undef MILL_OP_OF

}  // namespace millrace
