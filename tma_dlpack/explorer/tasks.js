// Tasks for beginners. A task has the state in which it starts, its texts, and a function that checks whether it is
// done.

const TASKS = {
  edge: {
    title: "Cross the edge",
    start: "#shape=32,256&box_sizes=8,64&swizzle=bytes128",
    asks: "Drag the box over an edge of the tensor until half of it is outside.",
    hint: "Nothing is refused: coordinates may be negative, or beyond the shape.",
    learned: "What is out of bounds became zeros, the barrier counts its bytes all the same, and the kernel needs no test of its own.",
    isDone: (now) => now.ok && now.tile.chunks.filter((c) => c.state === "filled").length * 2 >= now.tile.chunks.length,
  },
  break: {
    title: "Break it",
    start: "#shape=32,256&box_sizes=8,64&swizzle=bytes128",
    asks: "Change one number so that the map is refused.",
    hint: "A row of the box must be a multiple of 16 bytes: type 60 into box_sizes[1]. Or give the tensor 250 columns.",
    learned: "The report names the rule, what it read and the limit; the button below it applies the nearest fix.",
    isDone: ({ report }) => !report.ok,
  },
  banks: {
    title: "Remove the bank conflicts",
    start: "#shape=128,64&box_sizes=16,64&tab=banks&access=ldmatrix",
    asks: "ldmatrix needs 8 wavefronts for each phase of this tile. Make it 1, with the same box.",
    hint: "All 8 rows begin in the same bank. Choose the swizzle that is as wide as a row of the box: 64 float16 are 128 bytes.",
    learned: "The swizzle spreads the 16-byte columns of 8 rows over all 32 banks.",
    isDone: (now) => {
      const addresses = now.ok && String(now.state.box_sizes) === "16,64" && tmaModel.ldmatrix(now.request, 0, 0, { num: 4 });
      return Boolean(addresses) && tmaModel.banks(now.request, addresses).worst === 1;
    },
  },
  wide: {
    title: "One copy for a wide tile",
    start: "#shape=128,256&box_sizes=64,64&swizzle=bytes128",
    asks: "This copy brings 64 x 64 elements. Bring 64 x 128 of them with one copy, still swizzled by bytes128.",
    hint: "Rows of 128 float16 are wider than the swizzle's 128 bytes: describe the columns in spans, as one more dimension. split_inner under Options does it.",
    learned: "One copy fills two columns of spans of 128 bytes, each as wgmma reads it: the map has one more dimension.",
    isDone: (now) => now.ok && now.tile.txBytes === 64 * 128 * 2 && now.tile.swizzle === "bytes128",
  },
  core: {
    title: "Feed the tensor core",
    start: "#shape=128,64&box_sizes=60,64&tab=core",
    asks: "wgmma can't read this tile. Change the box and the swizzle until it can.",
    hint: "An atom has 8 rows: 60 is no multiple. Without a swizzle a row must be 16 bytes wide; bytes128 reads rows of 128.",
    learned: "The matrix descriptor says where the tile begins, how far it is to the next 8 rows, and the swizzle.",
    isDone: (now) => now.ok && now.state.kind === "tiled" && now.tile.spans.at(-1) === 64 && !tmaModel.operand(now.request, now.state.major).refusals.length,
  },
};
