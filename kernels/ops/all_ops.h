// Every op's header, for code that makes a table of all of them (op_list.h has their names). Station: device
// backends and tests.
#pragma once

#include "kernels/ops/action_log_prob.h"
#include "kernels/ops/adam.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gae.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/grad_reduce.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/moments.h"
#include "kernels/ops/op_list.h"
#include "kernels/ops/ppo_loss.h"
#include "kernels/ops/running_stats.h"
#include "kernels/ops/sac_discrete.h"
#include "kernels/ops/sac_loss.h"
#include "kernels/ops/shuffle.h"
#include "kernels/ops/tanh_gaussian.h"
#include "kernels/ops/vtrace.h"
