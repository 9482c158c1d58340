// SPDX-License-Identifier: GPL-2.0-or-later

// The GPUs that this process sees, in plain C types so that Python reads them through ctypes.
//
// Listing them makes no CUDA context, so it takes no memory on any GPU and disturbs no one. In a
// build without CUDA, and on a machine without a driver, the same functions say that there is none,
// and why.

#pragma once

#include <stdint.h>

extern "C" {

/// A GPU, by its number among the visible ones.
struct pwmlff_gpu {
  char name[128];         // "NVIDIA H200"
  char pci_bus_id[32];    // "0000:18:00.0"
  char uuid[48];          // "GPU-....", as nvidia-smi prints it; one GPU has one name on all nodes
  uint64_t total_memory;    // bytes
  int32_t major, minor;     // compute capability
  int32_t supported;        // 1 where this build has kernels for it, else 0
};

/// What holds for all GPUs. Versions as CUDA counts: 1000 major + 10 minor; 0 where there is none.
struct pwmlff_cuda {
  int32_t driver_version;      // the newest CUDA that the driver can run
  int32_t runtime_version;     // of the CUDA in this build
  int32_t oldest_supported;    // 10 major + minor of the oldest compute capability with kernels
  char reason[256];            // why there is no GPU, in one line; empty where there is one
};

/// Number of visible GPUs; the first `capacity` of them are written to gpus[].
int pwmlff_gpus(struct pwmlff_gpu *gpus, int capacity, struct pwmlff_cuda *cuda);

/// Memory of one GPU in bytes. Makes a context on that GPU and on no other, and leaves it the
/// current one of this thread.
/// @return 0, or -1 for an error whose text is then in message[0 .. size-1]
int pwmlff_gpu_memory(int gpu, uint64_t *free_bytes, uint64_t *total_bytes, char *message,
                      int size);

/// Make a GPU the current one of this thread. To be called before anything else of CUDA, so that no
/// context is made elsewhere. @return as above
int pwmlff_use_gpu(int gpu, char *message, int size);
}
