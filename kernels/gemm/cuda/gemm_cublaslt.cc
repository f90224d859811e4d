#include "kernels/gemm/cuda/gemm_cublaslt.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/ops/cuda/op_table.h"
#include "kernels/ops/linear.h"

namespace millrace {
namespace {

Status CublasStatus(cublasStatus_t code, const char* call) {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text =
      absl::StrCat(call, ": ", cublasLtGetStatusString(code), " (", cublasLtGetStatusName(code), ")");
  if (code == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(text);
  if (code == CUBLAS_STATUS_NOT_SUPPORTED) return absl::UnimplementedError(text);
  if (code == CUBLAS_STATUS_INVALID_VALUE) return absl::InvalidArgumentError(text);
  return absl::InternalError(text);
}

#define MILL_CUBLAS(call) MILL_RETURN_IF_ERROR(CublasStatus((call), #call))

// What a pointer is aligned to, up to the 256 bytes beyond which nothing changes.
uint32_t AlignmentOf(const void* p) {
  const auto bits = reinterpret_cast<uintptr_t>(p) | 256u;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

template <class Op>
Status RunPass(cudaStream_t stream, const typename Op::Params& params) {
  const CudaOp* op = FindCudaOp(kOpId<Op>);
  MILL_CHECK(op != nullptr);
  return CudaStatus(op->launch(stream, &params), NameOf(kOpId<Op>));
}

Status CheckShape(const char* what, int m, int n, int k,
                  std::initializer_list<std::pair<int, int>> ld_and_width) {
  if (m < 0 || n < 1 || k < 1)
    return absl::InvalidArgumentError(absl::StrCat(what, ": m ", m, ", n ", n, ", k ", k));
  for (const auto& [ld, width] : ld_and_width) {
    if (ld < width) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": rows of ", width, " that are ", ld, " apart"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// D [rows, cols] = op(A) [rows, inner] * op(B) [inner, cols] + beta * D, all column-major.
struct CublasLtGemm::Product {
  int rows = 0, cols = 0, inner = 0;
  const float* a = nullptr;
  int lda = 0;
  bool transpose_a = false;
  const float* b = nullptr;
  int ldb = 0;
  bool transpose_b = false;
  float* d = nullptr;
  int ldd = 0;
  float beta = 0.0f;
  const float* bias = nullptr;  // [rows], added to each column
};

struct CublasLtGemm::Description {
  cublasLtMatmulDescOpaque_t matmul;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

StatusOr<std::unique_ptr<CublasLtGemm>> CublasLtGemm::Make(bool allow_tf32) {
  cublasLtHandle_t handle = nullptr;
  MILL_CUBLAS(cublasLtCreate(&handle));
  return std::unique_ptr<CublasLtGemm>(new CublasLtGemm(handle, allow_tf32));
}

CublasLtGemm::~CublasLtGemm() {
  const Status status = CublasStatus(cublasLtDestroy(handle_), "cublasLtDestroy");
  if (!status.ok()) std::fprintf(stderr, "cuda: %s\n", std::string(status.message()).c_str());
}

StatusOr<CublasLtGemm::Description> CublasLtGemm::Describe(const Product& p) const {
  Description d;
  const auto compute = allow_tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  MILL_CUBLAS(cublasLtMatmulDescInit(&d.matmul, compute, CUDA_R_32F));
  const auto set = [&d](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return cublasLtMatmulDescSetAttribute(&d.matmul, attribute, &value, sizeof(value));
  };
  const int32_t op_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t op_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  MILL_CUBLAS(set(CUBLASLT_MATMUL_DESC_TRANSA, op_a));
  MILL_CUBLAS(set(CUBLASLT_MATMUL_DESC_TRANSB, op_b));
  const uint32_t epilogue = p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  MILL_CUBLAS(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  if (p.bias != nullptr) MILL_CUBLAS(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias));
  const auto u = [](int x) { return static_cast<uint64_t>(x); };
  MILL_CUBLAS(cublasLtMatrixLayoutInit(&d.a, CUDA_R_32F, u(p.transpose_a ? p.inner : p.rows),
                                       u(p.transpose_a ? p.rows : p.inner), p.lda));
  MILL_CUBLAS(cublasLtMatrixLayoutInit(&d.b, CUDA_R_32F, u(p.transpose_b ? p.cols : p.inner),
                                       u(p.transpose_b ? p.inner : p.cols), p.ldb));
  MILL_CUBLAS(cublasLtMatrixLayoutInit(&d.d, CUDA_R_32F, u(p.rows), u(p.cols), p.ldd));
  return d;
}

StatusOr<cublasLtMatmulAlgo_t> CublasLtGemm::AskHeuristic(const Product& p, const Description& d,
                                                          size_t workspace_bytes) const {
  cublasLtMatmulPreferenceOpaque_t preference;
  MILL_CUBLAS(cublasLtMatmulPreferenceInit(&preference));
  const auto prefer = [&preference](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
  };
  const uint64_t most = workspace_bytes;
  MILL_CUBLAS(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most));
  // Not in place: whoever of the split sums comes first would be added first.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  MILL_CUBLAS(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  // Left alone, these are 256 bytes, which tensors inside a flat buffer don't have.
  MILL_CUBLAS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(p.a)));
  MILL_CUBLAS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(p.b)));
  MILL_CUBLAS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(p.d)));
  MILL_CUBLAS(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(p.d)));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  auto& own =
      const_cast<Description&>(d);  // cuBLASLt takes descriptors as pointers to non-const and only reads them
  MILL_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle_, &own.matmul, &own.a, &own.b, &own.d, &own.d,
                                             &preference, 1, &result, &found));
  if (found == 0)
    return absl::UnimplementedError("cublasLtMatmulAlgoGetHeuristic: no algorithm for this shape");
  MILL_CUBLAS(result.state);
  return result.algo;
}

StatusOr<cublasLtMatmulAlgo_t> CublasLtGemm::AlgorithmFor(const Product& p, const Description& d,
                                                          size_t workspace_bytes) {
  const Key key = {p.rows,
                   p.cols,
                   p.inner,
                   p.lda,
                   p.ldb,
                   p.ldd,
                   p.transpose_a,
                   p.transpose_b,
                   p.beta != 0.0f,
                   p.bias != nullptr ? AlignmentOf(p.bias) : 0,
                   AlignmentOf(p.a),
                   AlignmentOf(p.b),
                   AlignmentOf(p.d),
                   static_cast<long>(workspace_bytes)};
  MutexLock lock(mutex_);
  if (const auto known = algorithms_.find(key); known != algorithms_.end()) return known->second;
  MILL_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t chosen, AskHeuristic(p, d, workspace_bytes));
  algorithms_[key] = chosen;
  return chosen;
}

Status CublasLtGemm::Multiply(cudaStream_t stream, const Product& p, Workspace workspace) {
  const auto multiply = [&]() -> Status {
    MILL_ASSIGN_OR_RETURN(Description d, Describe(p));
    MILL_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm, AlgorithmFor(p, d, workspace.bytes));
    const float alpha = 1.0f;
    MILL_CUBLAS(cublasLtMatmul(handle_, &d.matmul, &alpha, p.a, &d.a, p.b, &d.b, &p.beta, p.d, &d.d, p.d,
                               &d.d, &algorithm, workspace.data, workspace.bytes, stream));
    return absl::OkStatus();
  };
  const Status status = multiply();
  if (status.ok()) return status;
  return Status(status.code(), absl::StrCat(status.message(), " [column-major ", p.rows, " x ", p.cols,
                                            " over ", p.inner, ", ld ", p.lda, " ", p.ldb, " ", p.ldd, "]"));
}

Status CublasLtGemm::Forward(cudaStream_t stream, const ForwardArgs& g, Workspace workspace) {
  MILL_RETURN_IF_ERROR(CheckShape("forward", g.m, g.n, g.k, {{g.ldx, g.k}, {g.ldy, g.n}}));
  if (g.m == 0) return absl::OkStatus();
  Product p;  // Y' [n, m] = W' [n, k] X' [k, m]
  p.rows = g.n, p.cols = g.m, p.inner = g.k;
  p.a = g.w, p.lda = g.n;
  p.b = g.x, p.ldb = g.ldx;
  p.d = g.pre != nullptr ? g.pre : g.y;
  p.ldd = g.pre != nullptr ? g.ldpre : g.ldy;
  p.bias = g.bias;
  MILL_RETURN_IF_ERROR(Multiply(stream, p, workspace));
  if (g.activation == Activation::kNone && g.pre == nullptr) return absl::OkStatus();
  return RunPass<ApplyActivation>(stream, {g.m, g.n, g.activation, p.d, p.ldd, g.y, g.ldy});
}

Status CublasLtGemm::GradInput(cudaStream_t stream, const GradInputArgs& g, Workspace workspace) {
  MILL_RETURN_IF_ERROR(CheckShape("grad_input", g.m, g.n, g.k, {{g.lddy, g.n}, {g.lddx, g.k}}));
  if (g.m == 0) return absl::OkStatus();
  Product p;  // dX' [k, m] = W'^T [k, n] dY' [n, m]
  p.rows = g.k, p.cols = g.m, p.inner = g.n;
  p.a = g.wt, p.lda = g.n, p.transpose_a = true;
  p.b = g.dy, p.ldb = g.lddy;
  p.d = g.dx, p.ldd = g.lddx;
  MILL_RETURN_IF_ERROR(Multiply(stream, p, workspace));
  if (g.activation == Activation::kNone) return absl::OkStatus();
  return RunPass<ActivationGrad>(stream, {g.m, g.k, g.activation, g.x, g.ldx, g.pre, g.ldpre, g.dx, g.lddx});
}

Status CublasLtGemm::GradWeight(cudaStream_t stream, const GradWeightArgs& g, Workspace workspace) {
  MILL_RETURN_IF_ERROR(
      CheckShape("grad_weight", g.m, g.n, g.k, {{g.ldx, g.k}, {g.lddy, g.n}, {g.lddw, g.n}}));
  if (g.m == 0) return absl::OkStatus();
  Product p;  // dW' [n, k] += dY' [n, m] X'^T [m, k]
  p.rows = g.n, p.cols = g.k, p.inner = g.m;
  p.a = g.dy, p.lda = g.lddy;
  p.b = g.x, p.ldb = g.ldx, p.transpose_b = true;
  p.d = g.dw, p.ldd = g.lddw;
  p.beta = 1.0f;
  MILL_RETURN_IF_ERROR(Multiply(stream, p, workspace));
  if (g.db == nullptr) return absl::OkStatus();
  const int blocks = ColumnSums::Blocks(g.m);
  const size_t needed = static_cast<size_t>(blocks) * static_cast<size_t>(g.n) * sizeof(float);
  if (needed > workspace.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("grad_weight: the bias gradient of ", g.m, " rows by ",
                                                   g.n, " needs a workspace of ", needed, " bytes, not ",
                                                   workspace.bytes));
  }
  auto* partial = static_cast<float*>(workspace.data);
  MILL_RETURN_IF_ERROR(RunPass<ColumnSums>(stream, {g.m, g.n, g.dy, g.lddy, partial}));
  return RunPass<AddColumnSums>(stream, {blocks, g.n, partial, g.db});
}

}  // namespace millrace
