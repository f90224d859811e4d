// The parts of which ParityCases (parity.h) is made: one function a family, by size. Test code. Threads: any.
#pragma once

#include <vector>

#include "kernels/testing/parity.h"

namespace millrace {

// Advantages, layer norm, optimizer: [T, N] steps, [rows, dims] rows, n parameters.
void AddTrainCases(std::vector<ParityCase>* cases, int T, int N, int rows, int dims, int n);
// Sampling and the PPO loss over so many rows.
void AddPolicyCases(std::vector<ParityCase>* cases, int rows);
// The ops of SAC over so many rows.
void AddSacCases(std::vector<ParityCase>* cases, int rows);
// Moments, normalisation, gathering, permutations, and the passes that follow a product.
void AddDataCases(std::vector<ParityCase>* cases, int rows, int dims);
// The products of X [m, k] W [k, n].
void AddGemmCases(std::vector<ParityCase>* cases, int m, int k, int n, Activation activation);
void AddGradWeightCases(std::vector<ParityCase>* cases, int m, int k, int n);

}  // namespace millrace
