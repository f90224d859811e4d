#!/usr/bin/env python3
"""SAC of Stable-Baselines3 at the sizes of `millrace bench sac sac-deep`, to compare in the same quarter of an hour.

    sac_peer.py [--hidden 256 256 256] [--updates 1000] [--capacity 1000000] [--threads 2]

Needs a Python environment with torch and stable-baselines3 (run it by that environment's python). 17 observations,
6 actions, batch 256, a replay that is full. Prints milliseconds an update (median of ten parts) and peak resident
memory in MB; `millrace bench` prints the same as milliseconds_per_update and peak_resident_bytes.
"""

import argparse
import resource
import statistics
import time

import gymnasium
import numpy
import stable_baselines3
import torch


class Still(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-numpy.inf, numpy.inf, (17,), numpy.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (6,), numpy.float32)

    def reset(self, seed=None, options=None):
        return numpy.zeros(17, numpy.float32), {}

    def step(self, action):
        return numpy.zeros(17, numpy.float32), 0.0, False, False, {}


def full(buffer, capacity):
    source = numpy.random.default_rng(1)
    buffer.observations[:] = source.standard_normal(buffer.observations.shape, numpy.float32)
    buffer.next_observations[:] = source.standard_normal(buffer.observations.shape, numpy.float32)
    buffer.actions[:] = source.uniform(-1, 1, buffer.actions.shape)
    buffer.rewards[:] = source.standard_normal(buffer.rewards.shape, numpy.float32)
    buffer.pos, buffer.full = 0, True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256, 256])
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = stable_baselines3.SAC("MlpPolicy", Still(), buffer_size=arguments.capacity, batch_size=256, device="cpu",
                                  policy_kwargs={"net_arch": arguments.hidden})
    model._setup_learn(total_timesteps=1)
    full(model.replay_buffer, arguments.capacity)
    model.train(gradient_steps=20, batch_size=256)
    part, times = max(1, arguments.updates // 10), []
    for _ in range(10):
        began = time.perf_counter()
        model.train(gradient_steps=part, batch_size=256)
        times.append((time.perf_counter() - began) / part)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}, hidden {arguments.hidden}: "
          f"{1e3 * statistics.median(times):.2f} ms an update, peak resident memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
