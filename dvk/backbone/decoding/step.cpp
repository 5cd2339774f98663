// One more token of one sequence, in float32 on one core: what `forward.Decoder.step` computes, without an operator's cost for
// each of its 300 products, sums and copies. Weights are read where they lie, once. `native.py` mirrors the structs.

#include <cmath>
#include <cstdint>

struct Matrix {
  const float* weight;
  int64_t inputs, outputs, upright;  // upright: it lies [outputs, inputs], else [inputs, outputs]
};

struct Layer {
  const float *before_attention, *head_norm, *before_mlp;  // head_norm [query and key heads, size], or null
  Matrix qkv, output, gate_up, down;
};

struct Model {
  int64_t layers, width, heads, kv_heads, size;
  float eps;
  const float *words, *cos, *sin, *norm;
  const Layer* layer;
  Matrix head;
};

struct Cache {
  float *keys, *values;  // [kv heads, capacity, size]
};

static float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

static void multiply(const Matrix& m, const float* x, float* __restrict y) {
  const int64_t n = m.outputs;
  if (m.upright) {
    for (int64_t o = 0; o < n; ++o) y[o] = dot(m.weight + o * m.inputs, x, m.inputs);
    return;
  }
  for (int64_t o = 0; o < n; ++o) y[o] = 0;
  int64_t i = 0;
  for (const float* w = m.weight; i < m.inputs; w += 4 * n, i += 4) {
    const int64_t rows = m.inputs - i;  // the last of fewer than four are read again, times nothing
    const float *a = w, *b = rows > 1 ? w + n : w, *c = rows > 2 ? w + 2 * n : w, *d = rows > 3 ? w + 3 * n : w;
    const float s = x[i], t = rows > 1 ? x[i + 1] : 0, u = rows > 2 ? x[i + 2] : 0, v = rows > 3 ? x[i + 3] : 0;
    for (int64_t o = 0; o < n; ++o) y[o] += s * a[o] + t * b[o] + u * c[o] + v * d[o];
  }
}

static void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

static void normalise(const float* x, const float* weight, float* y, int64_t n, float eps) {
  const float scale = 1 / std::sqrt(dot(x, x, n) / n + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

// y = x turned to a position; the sign of the second half's partner is in `sin`.
static void rotate(const float* x, const float* cos, const float* sin, float* y, int64_t size) {
  for (int64_t i = 0, j = size / 2; j < size; ++i, ++j) {
    const float a = x[i], b = x[j];
    y[i] = a * cos[i] + b * sin[i];
    y[j] = b * cos[j] + a * sin[j];
  }
}

static void attend(const float* q, const float* keys, const float* values, float* scores, int64_t length, int64_t size, float* seen) {
  const float scale = 1 / std::sqrt(float(size));
  float most = -INFINITY, total = 0;
  for (int64_t t = 0; t < length; ++t) {
    scores[t] = dot(q, keys + t * size, size) * scale;
    most = std::fmax(most, scores[t]);
  }
  for (int64_t i = 0; i < size; ++i) seen[i] = 0;
  for (int64_t t = 0; t < length; ++t) {
    const float share = std::exp(scores[t] - most), *value = values + t * size;
    total += share;
    for (int64_t i = 0; i < size; ++i) seen[i] += share * value[i];
  }
  for (int64_t i = 0; i < size; ++i) seen[i] /= total;
}

// room: width + the widest of qkv and gate_up + heads × size + position + 1 floats; logits: [head.outputs].
extern "C" void step(const Model* model, const Cache* cache, int64_t capacity, int64_t token, int64_t position, float* x, float* room,
                     float* logits) {
  const Model& m = *model;
  const int64_t size = m.size, heads = m.heads, turned = heads + m.kv_heads, inner = m.layer->down.inputs;
  const float *cos = m.cos + position * size, *sin = m.sin + position * size;
  float *y = room, *seen = y + m.width, *scores = seen + heads * size, *wide = scores + position + 1;
  for (int64_t i = 0; i < m.width; ++i) x[i] = m.words[token * m.width + i];
  for (int64_t l = 0; l < m.layers; ++l) {
    const Layer& layer = m.layer[l];
    normalise(x, layer.before_attention, y, m.width, m.eps);
    multiply(layer.qkv, y, wide);
    for (int64_t h = 0; h < turned + m.kv_heads; ++h) {
      float* one = wide + h * size;
      if (h < turned && layer.head_norm) normalise(one, layer.head_norm + h * size, one, size, m.eps);
      if (h < heads) {
        rotate(one, cos, sin, one, size);
      } else if (h < turned) {
        rotate(one, cos, sin, cache[l].keys + ((h - heads) * capacity + position) * size, size);
      } else {
        for (int64_t i = 0; i < size; ++i) cache[l].values[((h - turned) * capacity + position) * size + i] = one[i];
      }
    }
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t start = h / (heads / m.kv_heads) * capacity * size;
      attend(wide + h * size, cache[l].keys + start, cache[l].values + start, scores, position + 1, size, seen + h * size);
    }
    multiply(layer.output, seen, y);
    add(x, y, m.width);
    normalise(x, layer.before_mlp, y, m.width, m.eps);
    multiply(layer.gate_up, y, wide);
    for (int64_t i = 0; i < inner; ++i) wide[i] *= wide[inner + i] / (1 + std::exp(-wide[i]));
    multiply(layer.down, wide, y);
    add(x, y, m.width);
  }
  normalise(x, m.norm, y, m.width, m.eps);
  multiply(m.head, y, logits);
}
