// SPDX-License-Identifier: GPL-2.0-or-later

#ifndef PWMLFF_TORCH_BLAS_H
#define PWMLFF_TORCH_BLAS_H

namespace pair_pwmlff {

/// Let torch call the BLAS and LAPACK that it brings along, not those of LAMMPS.
///
/// LAMMPS exports the plain loops of the reference implementation (its lib/linalg) under the same
/// names. The dynamic linker takes the first function of a name in a process, so that products of
/// float64 matrices in torch took most of the time of a step. A BLAS from elsewhere, linked to
/// LAMMPS or preloaded, is left alone: it is there on purpose.
///
/// @param torch  handle of libtorch_cpu
void use_blas_of_torch(void *torch);

}    // namespace pair_pwmlff

#endif
