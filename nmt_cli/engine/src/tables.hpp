// Sines and cosines of positions, from operations that are exact or rounded in one way on every processor.

#pragma once

#include <cmath>
#include <cstdint>

namespace {

// e^x for -700 < x <= 0, within a few units in the last place of a double.
inline double exponential_of(double x) {
    const double n = std::nearbyint(x * 1.4426950408889634),
                 r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
    double p = 1.0;
    for (int i = 16; i > 0; --i) p = p * r / i + 1.0;
    return std::ldexp(p, int(n));
}

// The sine and the cosine of 0 <= x < 2^20, within 1e-15.
inline void sine_cosine(double x, double& sine, double& cosine) {
    const double n = std::nearbyint(x * 0.6366197723675814);
    const double r = (x - n * 1.5707963267341256) - n * 6.077100506506192e-11, r2 = r * r;
    double s = 1.0, c = 1.0;
    for (int i = 18; i > 0; i -= 2) {
        s = 1.0 - s * r2 / (i * (i + 1));
        c = 1.0 - c * r2 / (i * (i - 1));
    }
    s *= r;
    const int64_t quarter = int64_t(n) & 3;
    sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

// 10000^(-i / size) for i from 0 to size.
inline double frequency(int64_t i, int64_t size) {
    return exponential_of(-9.210340371976182 * double(i) / double(size));
}

// Sinusoids (section 3.5): (positions, size), sine and cosine of each frequency side by side.
void sinusoids(int64_t first, int64_t last, int64_t size, float* table) {
    for (int64_t i = 0; i < size; i += 2) {
        const double step = frequency(i, size);
        for (int64_t p = first; p < last; ++p) {
            double sine, cosine;
            sine_cosine(double(p) * step, sine, cosine);
            table[p * size + i] = float(sine);
            if (i + 1 < size) table[p * size + i + 1] = float(cosine);
        }
    }
}

// Marian's sinusoids: (positions, size), all sines, then all cosines, of frequencies 10000^(-i / (size / 2 - 1)).
void marian_sinusoids(int64_t first, int64_t last, int64_t size, float* table) {
    const int64_t half = size / 2;
    for (int64_t i = 0; i < half; ++i) {
        const double step = frequency(i, half - 1);
        for (int64_t p = first; p < last; ++p) {
            double sine, cosine;
            sine_cosine(double(p) * step, sine, cosine);
            table[p * size + i] = float(sine);
            table[p * size + half + i] = float(cosine);
        }
    }
}

// Rotations (Su et al. 2021, equation 34): (positions, size), cosine and sine of each pair. The angles are rounded to
// fp32, as in training.
void rotations(int64_t first, int64_t last, int64_t size, float* table) {
    for (int64_t i = 0; i < size; i += 2) {
        const float step = float(frequency(i, size));
        for (int64_t p = first; p < last; ++p) {
            double sine, cosine;
            sine_cosine(double(float(p) * step), sine, cosine);
            table[p * size + i] = float(cosine);
            table[p * size + i + 1] = float(sine);
        }
    }
}

}  // namespace
