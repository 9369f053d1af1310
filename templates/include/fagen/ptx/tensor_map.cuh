// A tensor map: what TMA must know of a tensor in global memory, made by the host (PTX ISA, "Tensor-map").
// It is a member of the kernel's __grid_constant__ parameters, or lies in global memory.
#pragma once

namespace fagen::ptx {

struct alignas(64) TensorMap {
  unsigned char bytes[128];  // opaque
};

}  // namespace fagen::ptx
