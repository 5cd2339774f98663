"""A recurrent layer over a whole sequence in C++: steps in order, the units of a step in blocks for threads.

A task is a block of units (one cache line) and a tile of rows of the batch: the sums of its gates stay in registers while k runs over the
previous state, then one vector loop computes the gates. The layout of the weights lets a task read them in order; a thread keeps its blocks
from step to step, so that they stay in its cache. There is one barrier per step, and none if there is too little work to share.
"""

from __future__ import annotations

from string import Template

from dvk.composer.ir.recurrence import Recurrence

RUN = 256
"""Elements of k per run of partial sums, times gates: the weights of a block, 16 KiB, stay in the L1 cache."""
SHARED_FROM = 1 << 17
"""Multiplications per step from which threads share it: a barrier takes about a microsecond."""

TEXT = Template("""\
// $title
namespace $name_ {
typedef $real lane;
const long T = $steps, B = $batch, H = $hidden, D = $directions, G = $gates, L = $lanes, N = $blocks, RUN = $run;
const long AT = $a_step, AB = $a_row, YB = D * H, YT = B * YB;  // from one step, or row, to the next
#ifdef __AVX512F__
const long WIDE = 64, SUMS = 24;
#else
const long WIDE = 32, SUMS = 12;
#endif
const long V = WIDE / sizeof(lane), ROWS = SUMS / G < B ? SUMS / G : B, TILES = (B + ROWS - 1) / ROWS;
typedef lane vec __attribute__((vector_size(WIDE), aligned(sizeof(lane))));

// s[g][r][l] += the sum over k of h[r][k] * w[k][g][l]; a few sums take turns where one alone would wait for itself
template <int R> __attribute__((noinline, optimize("fp-contract=fast")))
void product(const lane* __restrict h, long row, const lane* __restrict w, lane* __restrict s) {
  const int TURNS = R * G < 8 ? 8 / (R * G) : 1;
  for (long k0 = 0; k0 < H; k0 += RUN) {
    const long k1 = k0 + RUN < H ? k0 + RUN : H;
    for (long l = 0; l < L; l += V) {
      vec sum[TURNS][R][G] = {};
      const long turns = (k1 - k0) / TURNS * TURNS;
      for (long k = k0; k < k0 + turns; k += TURNS)
#pragma GCC unroll 8
        for (int i = 0; i < TURNS; ++i)
#pragma GCC unroll 4
          for (int g = 0; g < G; ++g)
#pragma GCC unroll 24
            for (int r = 0; r < R; ++r) sum[i][r][g] += h[r * row + k + i] * *(const vec*)(w + ((k + i) * G + g) * L + l);
      for (long k = k0 + turns; k < k1; ++k)
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g)
#pragma GCC unroll 24
          for (int r = 0; r < R; ++r) sum[0][r][g] += h[r * row + k] * *(const vec*)(w + (k * G + g) * L + l);
#pragma GCC unroll 8
      for (int i = 0; i < TURNS; ++i)
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g)
#pragma GCC unroll 24
          for (int r = 0; r < R; ++r) *(vec*)(s + (g * ROWS + r) * L + l) += sum[i][r][g];
    }
  }
}

static inline lane sigmoid(lane x) { return 1 / (1 + dvk_exp$f(-x)); }
}

extern "C" void $name($parameters) {
  using namespace $name_;
$begin#pragma omp parallel if (D * B * N * L * G * H >= $shared)
  for (long step = 0; step < T; ++step) {
#pragma omp for schedule(static)
    for (long task = 0; task < D * N * TILES; ++task) {
      const long d = task / (N * TILES), block = task / TILES % N, row0 = task % TILES * ROWS, u = block * L;
      const long t = d ? T - 1 - step : step, rows = B - row0 < ROWS ? B - row0 : ROWS, units = H - u < L ? H - u : L;
      const lane* before = step ? y + (d ? t + 1 : t - 1) * YT + row0 * YB + d * H : h0 + (d * B + row0) * H;
      const long row = step ? YB : H;
      lane s[G * ROWS * L];
      for (long g = 0; g < G; ++g)
        for (long r = 0; r < ROWS; ++r)
          for (long l = 0; l < L; ++l) s[(g * ROWS + r) * L + l] = $start;
      const lane* weights = w + (d * N + block) * H * G * L;
      if (rows == ROWS) product<ROWS>(before, row, weights, s);
      else product<B % ROWS ? B % ROWS : 1>(before, row, weights, s);
      for (long r = 0; r < rows; ++r) {
        const lane* x = a + t * AT + (row0 + r) * AB + d * G * H + u;
        const lane* m = s + r * L;
        lane* to = y + t * YT + (row0 + r) * YB + d * H + u;
$state#pragma omp simd
        for (long l = 0; l < units; ++l) {
$step
        }
      }
    }
  }
  for (long d = 0; d < D; ++d)
    for (long r = 0; r < B; ++r)
      __builtin_memcpy(h1 + (d * B + r) * H, y + (d ? 0 : T - 1) * YT + r * YB + d * H, H * sizeof(lane));
}
""")
STATE = {
    "gru": "const lane* old = before + r * row + u;",
    "lstm": "lane* c = c1 + (d * B + row0 + r) * H + u;",
}
"""The units' state after the previous step."""
STEP = {
    "rnn_tanh": ("to[l] = tanh$f(x[l] + m[l]);",),
    "rnn_relu": ("const lane sum = x[l] + m[l];", "to[l] = sum < 0 ? 0 : sum;"),
    "gru": (
        "const lane reset = sigmoid(x[l] + m[l]), keep = sigmoid(x[H + l] + m[ROWS * L + l]);",
        "const lane fresh = tanh$f(x[2 * H + l] + m[2 * ROWS * L + l] * reset);",
        "to[l] = (old[l] - fresh) * keep + fresh;",
    ),
    "lstm": (
        "const lane take = sigmoid(x[l] + m[l]), forget = sigmoid(x[H + l] + m[ROWS * L + l]);",
        "const lane kept = forget * c[l] + take * tanh$f(x[2 * H + l] + m[2 * ROWS * L + l]);",
        "c[l] = kept;",
        "to[l] = sigmoid(x[3 * H + l] + m[3 * ROWS * L + l]) * tanh$f(kept);",
    ),
}
"""The gates of one unit."""


def render(made: Recurrence, name: str) -> str:
    """C++ source of one layer, without the prelude."""
    f, real = ("f", "float") if made.dtype == "float32" else ("", "double")
    step = "\n".join(f"          {line}" for line in STEP[made.mode])
    return TEXT.substitute(
        title=made.summary,
        name=name,
        name_=f"{name}_",
        real=real,
        f=f,
        steps=made.steps,
        batch=made.batch,
        hidden=made.hidden,
        directions=made.directions,
        gates=made.gates,
        lanes=made.lanes,
        blocks=made.blocks,
        run=RUN // made.gates,
        shared=SHARED_FROM,
        a_step="D * G * H" if made.batch_first else "B * D * G * H",
        a_row="T * D * G * H" if made.batch_first else "D * G * H",
        parameters=", ".join(
            [
                *(f"const {real}* __restrict {n}" for n in made.read),
                *(f"{real}* __restrict {n}" for n in made.written),
            ]
        ),
        begin="  __builtin_memcpy(c1, c0, D * B * H * sizeof(lane));\n"
        if made.mode == "lstm"
        else "",
        start="b[((d * N + block) * G + g) * L + l]" if made.biased else "0",
        state=f"        {STATE[made.mode]}\n" if made.mode in STATE else "",
        step=Template(step).substitute(f=f),
    )
