// The local ensemble transform Kalman filter (Hunt, Kostelich and Szunyogh 2007) at one point of the grid.
#pragma once

#include <vector>

namespace cycle {

/// 1 at distance 0, 0 from distance 2 on: the fifth-order function of Gaspari and Cohn (1999), equation 4.10.
double gaspari_cohn(double distance);

/// What the filter takes from the observations near a point.
struct LocalObservations {
  std::vector<double> perturbations;  // [observation][member]: a member's equivalent less the mean of all members'
  std::vector<double> departures;     // observed less the mean
  std::vector<double> weights;        // the inverse of the error's variance, times the localization
};

/// W: the analysis of member m is the mean of the guess and the sum over n of W[n][m] times the guess' perturbation of
/// member n. `inflation`: factor of the guess' covariance. Equations 20 to 25 of the paper.
class Letkf {
 public:
  Letkf(int members, double inflation);
  const std::vector<double>& weights(const LocalObservations& local);  // [n][m]

 private:
  int members_;
  double inflation_;
  std::vector<double> matrix_, values_, work_, weighted_, mean_, weights_;
};

}  // namespace cycle
