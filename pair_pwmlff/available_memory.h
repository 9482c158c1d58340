// SPDX-License-Identifier: GPL-2.0-or-later

// How much memory is left for the processes of this host.

#pragma once

#include <string>

namespace pair_pwmlff {

/// Bytes that this process and others of its job can still take without being killed: what the
/// kernel says is available, or less where control groups (of Slurm, of a container; versions 1 and
/// 2) limit this process or any group around it. Infinite where nothing says it.
/// @param root  of the files proc/meminfo, proc/self/cgroup and sys/fs/cgroup
double available_memory(const std::string &root = "/");

}    // namespace pair_pwmlff
