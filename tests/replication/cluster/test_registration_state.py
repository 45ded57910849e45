"""The registration state of a node never claims more than its disk has kept."""

from engine.log.recovery import LastShutdown
from engine.testing.recording_disk import RecordingDisk
from replication.cluster.registration_state import RegistrationState, load_registration_state, save_registration_state

DATA = "/data"


def disk_with(registration_state: RegistrationState) -> RecordingDisk:
    disk = RecordingDisk()
    disk.mkdir(DATA)
    save_registration_state(disk, DATA, registration_state)
    return disk


def test_a_new_disk_is_trusted_from_its_first_registration_on():
    disk = RecordingDisk()
    disk.mkdir(DATA)
    found = load_registration_state(disk, DATA, LastShutdown.CLEAN)
    assert found == RegistrationState(None, None)
    assert found.registered(7) == RegistrationState(7, 7)


def test_a_kill_changes_nothing():
    disk = disk_with(RegistrationState(3, 5))
    for stop in (LastShutdown.CLEAN, LastShutdown.KILLED):
        assert load_registration_state(disk, DATA, stop).registered(9) == RegistrationState(3, 5)


def test_a_power_loss_keeps_the_disk_and_nothing_unsynced():
    disk = disk_with(RegistrationState(3, 5))
    assert load_registration_state(disk, DATA, LastShutdown.POWER_LOSS).registered(9) == RegistrationState(3, 9)


def test_a_power_loss_is_remembered_through_a_kill_before_registering():
    disk = disk_with(RegistrationState(3, 5))
    load_registration_state(disk, DATA, LastShutdown.POWER_LOSS)
    assert load_registration_state(disk.snapshot(), DATA, LastShutdown.KILLED).registered(9) == RegistrationState(3, 9)


def test_a_doubtful_file_is_not_trusted():
    disk = disk_with(RegistrationState(3, 5))
    handle = disk.open(f"{DATA}/vouching", writable=True)
    disk.pwritev(handle, [b"x"], 3)
    assert load_registration_state(disk, DATA, LastShutdown.CLEAN) == RegistrationState(None, None)
