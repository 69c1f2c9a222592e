// hopper_conv.cu: a 3 x 3 convolution with stride 1 and padding 1, as one GEMM. bf16 in and out, float
// accumulation, for compute capability 9.0.
//
// x is (N, H, W, C), out is (N, H, W, K), weights are (K, 3, 3, C): channels last. Row m of the GEMM is
// an output pixel, column n is an output channel, and k counts the channels of the 9 taps. A tile of A is one
// im2col load: 64 channels of 128 pixels, at the offset of a tap. TMA fills pixels outside the image with
// zeros, which serve as padding. The rest is as in hopper_gemm.cu. C and K must be multiples of 8.

#include "hopper_gemm.cu"

namespace conv
{

using namespace gemm;

using Choose = Fast;

struct Image
{
  int width, height, images, channels;
};

}  // namespace conv

// `x` is an im2col map with 64 channels, 128 pixels and corners -1. `weights` is a map of (K, 9, C) with boxes of
// (128, 1, 64). `out` is a map of (N * H * W, K) with boxes of (64, 64). All maps have the swizzle bytes128.
extern "C" __global__ void __cluster_dims__(conv::Choose::cluster) __launch_bounds__(conv::THREADS, 1)
  hopper_conv(const __grid_constant__ conv::Map x, const __grid_constant__ conv::Map weights,
              const __grid_constant__ conv::Map out, const conv::Image image, int out_channels)
{
  using namespace conv;
  constexpr int PART = TILE_N / Choose::cluster;
  const int part = static_cast<int>(cluster_rank()) * PART;
  const int pixels = image.width * image.height * image.images;
  const int channel_blocks = (image.channels + TILE_K - 1) / TILE_K;

  run(out, Tiles<Choose>(pixels, out_channels), 9 * channel_blocks * TILE_K,
      [&](const Ring<Choose>& ring, int2 place, int k0)
      {
        const int tap = k0 / TILE_K / channel_blocks, c = k0 - tap * channel_blocks * TILE_K;
        const int pixel = min(place.x, pixels - 1);  // tiles after the last pixel are not stored
        const int w = pixel % image.width, row = pixel / image.width;
        const OffsetsWH at{static_cast<unsigned short>(tap % 3), static_cast<unsigned short>(tap / 3)};
        load_im2col(ring.a(), x, ring.full(), c, w - 1, row % image.height - 1, row / image.height, at);
        load_multicast(ring.b() + part * Choose::span, weights, ring.full(), (1 << Choose::cluster) - 1,
                       c, tap, place.y + part);
      });
}
