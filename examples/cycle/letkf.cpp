#include "letkf.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "files.h"

// LAPACK: eigenvalues, ascending, and eigenvectors of a symmetric matrix.
extern "C" void dsyev_(const char* jobz, const char* uplo, const int* n, double* a, const int* lda, double* w,
                       double* work, const int* lwork, int* info, std::size_t, std::size_t);

namespace cycle {

double gaspari_cohn(double distance) {
  const double r = std::fabs(distance);
  if (r >= 2) return 0;
  if (r <= 1) return (((-0.25 * r + 0.5) * r + 0.625) * r - 5.0 / 3.0) * r * r + 1;
  return ((((r / 12 - 0.5) * r + 0.625) * r + 5.0 / 3.0) * r - 5) * r + 4 - 2 / (3 * r);
}

Letkf::Letkf(int members, double inflation)
    : members_(members),
      inflation_(inflation),
      matrix_(static_cast<std::size_t>(members) * members),
      values_(members),
      work_(static_cast<std::size_t>(34) * members),
      weighted_(members),
      mean_(members),
      weights_(matrix_.size()) {}

const std::vector<double>& Letkf::weights(const LocalObservations& local) {
  const int k = members_;
  const std::size_t observations = local.departures.size();
  // (k - 1) I / inflation + Yᵀ R⁻¹ Y, and Yᵀ R⁻¹ times the departures
  std::fill(matrix_.begin(), matrix_.end(), 0.0);
  std::fill(weighted_.begin(), weighted_.end(), 0.0);
  for (std::size_t o = 0; o < observations; ++o) {
    const double* y = local.perturbations.data() + o * k;
    for (int n = 0; n < k; ++n) {
      const double part = y[n] * local.weights[o];
      weighted_[n] += part * local.departures[o];
      for (int m = n; m < k; ++m) matrix_[static_cast<std::size_t>(n) * k + m] += part * y[m];
    }
  }
  for (int n = 0; n < k; ++n) matrix_[static_cast<std::size_t>(n) * k + n] += (k - 1) / inflation_;
  // The half that is set is the lower one for Fortran, which has columns where C has rows.
  const int words = static_cast<int>(work_.size());
  int info = 0;
  dsyev_("V", "L", &k, matrix_.data(), &k, values_.data(), work_.data(), &words, &info, 1, 1);
  if (info != 0) fail("filter: dsyev failed with info " + std::to_string(info));
  // With eigenvectors e: P = Σ e eᵀ / value. The mean's weights are P Yᵀ R⁻¹ departures, the perturbations' the square
  // root of (k - 1) P.
  std::fill(mean_.begin(), mean_.end(), 0.0);
  std::fill(weights_.begin(), weights_.end(), 0.0);
  for (int e = 0; e < k; ++e) {
    const double* vector = matrix_.data() + static_cast<std::size_t>(e) * k;
    double along = 0;
    for (int n = 0; n < k; ++n) along += vector[n] * weighted_[n];
    const double root = std::sqrt((k - 1) / values_[e]);
    for (int n = 0; n < k; ++n) {
      mean_[n] += vector[n] * along / values_[e];
      const double part = vector[n] * root;
      for (int m = 0; m < k; ++m) weights_[static_cast<std::size_t>(n) * k + m] += part * vector[m];
    }
  }
  for (int n = 0; n < k; ++n)
    for (int m = 0; m < k; ++m) weights_[static_cast<std::size_t>(n) * k + m] += mean_[n];
  return weights_;
}

}  // namespace cycle
