"""Does squall do what the equations and the published cases say?"""

import numpy as np
import pytest

AFTER = "squall_d01_0001-01-01_{}"


def test_a_resting_atmosphere_stays_at_rest(squall, read):
    """To the bit: everything is computed from departures of a balanced base state."""
    last = squall(2, "--case", "rest", "--minutes", 10) / AFTER.format("00:10:00")
    for name in ("U", "V", "W", "P", "QCLOUD", "QRAIN", "RAINNC"):
        assert not read(last, name).any(), name


def test_a_density_current_runs_as_far_and_is_as_cold_as_the_published_one(squall, read):
    """Straka et al. (1993), 900 s; their 25 m reference: front (-1 K) at 15537 m, coldest -9.77 K. Here 100 m."""
    last = squall(1, "--case", "density-current", "--history-minutes", 15) / AFTER.format("00:15:00")
    theta, u, w = (a[:, 0, :] for a in read(last, "T", "U", "W"))
    x = (np.arange(512) + 0.5 - 256) * 100.0
    behind = np.flatnonzero(theta[0] < -1.0).max()
    front = np.interp(-1.0, theta[0, behind : behind + 2], x[behind : behind + 2])
    assert front == pytest.approx(15537, abs=150)
    assert theta.min() == pytest.approx(-9.77, abs=0.4)
    assert w.max() == pytest.approx(12.9, abs=0.8)
    assert w.min() == pytest.approx(-15.9, abs=0.8)
    assert abs(u).max() == pytest.approx(36.5, abs=1.5)
    assert np.array_equal(theta, theta[:, ::-1]), "two currents, one the mirror image of the other"


def test_a_dry_thermal_rises_as_the_published_one(squall, read):
    """Bryan and Fritsch (2002), 1000 s, 100 m: w between about -8.6 and 14.5 m/s, warmest about 2.1 K."""
    last = squall(1, "--case", "thermal") / AFTER.format("00:16:40")
    theta, w = read(last, "T", "W")
    assert w.max() == pytest.approx(14.5, abs=0.7)
    assert w.min() == pytest.approx(-8.6, abs=0.4)
    assert theta.max() == pytest.approx(2.07, abs=0.2)
    assert theta.min() > -0.25


def test_without_wind_a_storm_is_its_own_mirror_image(squall, read):
    run = squall(4, "--nx", 30, "--ny", 24, "--nz", 20, "--shear", 0, "--bubble", 5, "--minutes", 30, "--history-minutes", 30)
    last = run / AFTER.format("00:30:00")
    assert read(last, "W").max() > 10
    assert read(last, "RAINNC").max() > 0.1
    for name, in_x, in_y in [
        ("U", -1, 1),
        ("V", 1, -1),
        ("W", 1, 1),
        ("T", 1, 1),
        ("P", 1, 1),
        ("QRAIN", 1, 1),
        ("RAINNC", 1, 1),
    ]:
        field = read(last, name)
        assert np.array_equal(field, in_x * field[..., ::-1]), f"{name}: west and east"
        assert np.array_equal(field, in_y * field[..., ::-1, :]), f"{name}: south and north"


def test_no_air_and_no_water_is_lost_between_periodic_sides(squall, read):
    run = squall(2, "--boundaries", "periodic", "--nx", 30, "--ny", 30, "--nz", 20, "--bubble", 5, "--minutes", 40)

    def budget(time):
        last = run / AFTER.format(time)
        density, geopotential, fallen = 1.0 / read(last, "ALT"), read(last, "PHB"), read(last, "RAINNC")
        depth = np.diff(geopotential, axis=0) / 9.81
        water = sum(read(last, name) for name in ("QVAPOR", "QCLOUD", "QRAIN"))
        for name in ("QVAPOR", "QCLOUD", "QRAIN"):
            assert read(last, name).min() >= 0
        return (density * depth).sum(), (density * depth * water).sum(), fallen.sum()

    air, water, fallen = budget("00:00:00")
    assert fallen == 0
    air_then, water_then, fallen_then = budget("00:40:00")
    assert fallen_then > 1e-3 * water, "it has rained"
    assert air_then == pytest.approx(air, rel=2e-7)
    assert water_then + fallen_then == pytest.approx(water, rel=1e-6)


def test_a_storm_in_straight_shear_splits_into_a_left_and_a_right_one(squall, read):
    ny = 48
    run = squall(2, "--nx", 48, "--ny", ny, "--nz", 32, "--ztop", 17600, "--minutes", 75, "--history-minutes", 25)
    early, late = run / AFTER.format("00:25:00"), run / AFTER.format("01:15:00")

    def updraft(path):
        """The strongest updraft at 5 km of each row of cells."""
        w, geopotential = read(path, "W", "PHB")
        level = abs(geopotential[:, 0, 0] / 9.81 - 5000).argmin()
        return w[level].max(axis=1)

    middle = ny // 2
    assert updraft(early).argmax() in (middle - 2, middle - 1, middle, middle + 1), "one storm, or two still side by side"
    rows = updraft(late)
    right, left = rows[:middle].argmax(), middle + rows[middle:].argmax()
    assert left - right >= 8, "at least 16 km apart"
    assert min(rows[left], rows[right]) > 12
    assert rows[middle - 1 : middle + 1].max() < 0.6 * rows[right]
    # Only the right one turns cyclonically while it rises: its partner has the opposite sign.
    helicity = read(late, "UP_HELI_MAX")
    assert helicity[:middle].max() > 100
    assert helicity[middle:].max() < 0.3 * helicity[:middle].max()
    assert 25 < max(read(run / AFTER.format(t), "W_UP_MAX").max() for t in ("00:25:00", "00:50:00", "01:15:00")) < 50
    assert 50 < read(late, "REFD_COM").max() < 70
    assert read(late, "T2").min() < read(early, "T2").max() - 3, "rain has cooled the air near the ground"
