// hopper_conv.cu: a 3 x 3 convolution, stride 1, padding 1, as one GEMM: bf16 in and out, float
// accumulation, for compute capability 9.0.
//
// x is (N, H, W, C), out is (N, H, W, K), weights are (K, 3, 3, C): channels last. Row m of the GEMM is
// an output pixel, column n an output channel, and k runs over 9 taps times the channels. A tile of A
// is an im2col load: 128 pixels in a row, 64 channels, moved by the tap; where the tap leaves the image
// TMA fills in zeros, which is the padding. All else is hopper_gemm.cu's. C and K: multiples of 8.

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

// Maps: x im2col, 64 channels of 128 pixels, corners -1; weights as (K, 9, C) with boxes (128, 1, 64);
// out as (N * H * W, K) with boxes (64, 64); all swizzled by 128 bytes.
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
        const int pixel = min(place.x, pixels - 1);  // a tile below the last row is not stored
        const int w = pixel % image.width, row = pixel / image.width;
        const OffsetsWH at{static_cast<unsigned short>(tap % 3), static_cast<unsigned short>(tap / 3)};
        load_im2col(ring.a(), x, ring.full(), c, w - 1, row % image.height - 1, row / image.height, at);
        load_multicast(ring.b() + part * Choose::span, weights, ring.full(), (1 << Choose::cluster) - 1,
                       c, tap, place.y + part);
      });
}
