"""Files, real and broken: every frame once, in order, with the right time and state."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import av
import numpy as np
import pytest
from media import picture, without_stamps, write_audio, write_video
from stream_rig import play, stream

from framepool.streams import SAMPLES_DIR
from framepool.streams.errors import SourceErrorCode
from framepool.streams.reports import DecodeState

CLIP = SAMPLES_DIR / "walkway.mp4"
MS = 1_000_000


def test_all_frames_come_in_order(tmp_path: Path) -> None:
    sink = play(write_video(tmp_path / "a.mp4", 20))
    assert sink.levels == list(range(20))
    assert [f.seq for f in sink.frames] == list(range(20))
    assert [f.media_time_ns for f in sink.frames] == [i * 40 * MS for i in range(20)]
    assert sink.states == [DecodeState.CONNECTING, DecodeState.RUNNING, DecodeState.FINISHED]
    assert not sink.drops


def test_b12_frames_held_back_by_reordering_are_not_lost(tmp_path: Path) -> None:
    """B12: with B-frames the decoder holds frames back; at the end all come out, in order."""
    sink = play(write_video(tmp_path / "b.mp4", 25, options={"bf": "3"}))
    assert sink.levels == list(range(25))


def test_b1_variable_rate_keeps_its_stamps(tmp_path: Path) -> None:
    """B1: time comes from stamps, not from counting."""
    stamps = [0.0, 0.04, 0.08, 0.5, 0.9, 0.94, 2.0]
    sink = play(write_video(tmp_path / "vfr.mkv", stamps=stamps))
    assert [f.media_time_ns for f in sink.frames] == [round(s * 1000) * MS for s in stamps]


def test_b3_streams_without_stamps_get_synthetic_ones(tmp_path: Path) -> None:
    """B3: a bare H.264 stream: times go up evenly, and are flagged."""
    made = write_video(tmp_path / "a.mp4", 20, options={"bf": "0"})
    sink = play(without_stamps(made, tmp_path / "raw.h264"))
    assert len(sink.frames) == 20
    times = [f.media_time_ns for f in sink.frames]
    assert times == sorted(set(times))
    assert all(b - a <= 200 * MS for a, b in itertools.pairwise(times))


def test_b4_a_cut_file_keeps_its_frames_and_says_so(tmp_path: Path) -> None:
    """B4: a file with its index in front, cut in the middle."""
    made = write_video(tmp_path / "a.mp4", 100, options={"g": "10"}, container_format=None)
    with (
        av.open(str(made)) as source,
        av.open(str(tmp_path / "fast.mp4"), "w", options={"movflags": "faststart"}) as out,
    ):
        stream_in = source.streams.video[0]
        stream_out = out.add_stream_from_template(stream_in)
        for packet in source.demux(stream_in):
            if packet.dts is not None:
                packet.stream = stream_out
                out.mux(packet)
    whole = (tmp_path / "fast.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: int(len(whole) * 0.7)])
    sink = play(tmp_path / "cut.mp4")
    assert 10 < len(sink.frames) < 100
    assert sink.states[-1] is DecodeState.FINISHED_WITH_ERRORS
    assert f"{len(sink.frames)} frames were read" in sink.reports[-1].error


@pytest.mark.parametrize("kind", ["no-moov", "text", "audio"])
def test_b4_b5_b6_what_is_no_video_fails_at_once_and_is_not_tried_again(tmp_path: Path, kind: str) -> None:
    """B4, B5, B6."""
    path = tmp_path / f"{kind}.mp4"
    match kind:
        case "no-moov":
            path.write_bytes(write_video(tmp_path / "a.mp4", 50).read_bytes()[:700])
        case "text":
            path.write_text("nothing to see\n" * 50)
        case "audio":
            path = write_audio(tmp_path / "sound.mp4")
    sink = play(path, timeout_s=10)
    assert sink.states == [DecodeState.CONNECTING, DecodeState.FAILED]
    expected = SourceErrorCode.NO_VIDEO if kind == "audio" else SourceErrorCode.INVALID_MEDIA
    assert sink.reports[-1].error_code == expected
    assert path.name in sink.reports[-1].error


def test_b9_stamps_that_start_over_never_go_back(tmp_path: Path) -> None:
    """B9: two transport streams, one after the other: the second's stamps begin again."""
    one = write_video(tmp_path / "a.ts", 25, options={"bf": "0"}).read_bytes()
    (tmp_path / "twice.ts").write_bytes(one + one)
    sink = play(tmp_path / "twice.ts")
    times = [f.media_time_ns for f in sink.frames]
    assert len(times) == 50
    assert all(0 < b - a <= 100 * MS for a, b in itertools.pairwise(times))


def test_c12_damaged_packets_are_skipped_and_counted(tmp_path: Path) -> None:
    """C12: noise in the middle of a stream costs frames, not the stream."""
    data = bytearray(write_video(tmp_path / "a.ts", 100, options={"g": "10", "bf": "0"}).read_bytes())
    rng = np.random.default_rng(1)
    for position in rng.integers(len(data) // 3, len(data) // 2, 200):
        if position % 188 > 4:
            data[position] ^= 0xFF
    (tmp_path / "noisy.ts").write_bytes(bytes(data))
    sink = play(tmp_path / "noisy.ts")
    assert len(sink.frames) >= 60
    assert sink.levels[:20] == list(range(20))
    assert sink.states[-1] in (DecodeState.FINISHED_WITH_ERRORS, DecodeState.FINISHED)


def test_c11_nothing_before_the_first_key_frame(tmp_path: Path) -> None:
    """C11: a stream joined in the middle of a group of pictures begins with its next key frame."""
    made = write_video(tmp_path / "a.mp4", 50, options={"g": "10", "bf": "0", "sc_threshold": "0"})
    raw = without_stamps(made, tmp_path / "raw.h264").read_bytes()
    (tmp_path / "joined.h264").write_bytes(raw[len(raw) // 4 :])
    sink = play(tmp_path / "joined.h264")
    assert sink.levels
    assert sink.levels[0] % 10 == 0
    assert sink.levels == list(range(sink.levels[0], 50))


def test_c1_resolution_changes_in_the_stream(tmp_path: Path) -> None:
    """C1: each frame is given with its own true size."""
    one = write_video(tmp_path / "a.ts", 10, size=(64, 48), options={"bf": "0"}).read_bytes()
    two = write_video(tmp_path / "b.ts", 10, size=(128, 72), options={"bf": "0"}).read_bytes()
    (tmp_path / "both.ts").write_bytes(one + two)
    sink = play(tmp_path / "both.ts")
    sizes = [(f.width_px, f.height_px) for f in sink.frames]
    assert sizes[:10] == [(64, 48)] * 10
    assert sizes[-9:] == [(128, 72)] * 9
    assert [f.transform for f in sink.frames][-1] == (128.0, 72.0)


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_b8_rotation_is_applied_once(tmp_path: Path, turn: int) -> None:
    """B8: frames are given as displayed: the bright quarter, top left before the turn, is where it is shown."""
    made = write_video(tmp_path / "a.mp4", 3, rotation_deg=turn)
    with av.open(str(made)) as container:
        decoded = next(container.decode(video=0))
        shown = decoded.to_ndarray(format="rgb24")
        rotation = round(decoded.rotation)
    assert rotation % 360 == turn
    sink = play(made, shape=(64, 64, 3))
    expected = np.rot90(shown, k=rotation // 90)
    assert (sink.frames[0].height_px, sink.frames[0].width_px) == expected.shape[:2]
    got = sink.pictures[0][: expected.shape[0], : expected.shape[1]]
    assert np.abs(got.astype(int) - expected.astype(int)).mean() < 6


@pytest.mark.parametrize(
    ("codec", "suffix", "pix_fmt", "size"),
    [
        ("libx264", "mp4", "yuv420p", (322, 242)),
        ("mpeg4", "avi", "yuv420p", (64, 48)),
        ("ffv1", "mkv", "yuv444p", (321, 241)),
        ("ffv1", "mkv", "gray", (64, 48)),
        ("ffv1", "mkv", "gray16le", (64, 48)),
        ("ffv1", "mkv", "yuv420p10le", (64, 48)),
        ("mjpeg", "avi", "yuvj420p", (64, 48)),
        ("png", "mov", "rgba", (64, 48)),
    ],
)
def test_c2_c3_c4_c5_c6_every_format_becomes_8_bit_rgb(
    tmp_path: Path, codec: str, suffix: str, pix_fmt: str, size: tuple[int, int]
) -> None:
    """C2-C6: odd sizes, 10 bits, gray, full range, alpha: same picture, uint8 [h, w, 3]."""
    made = write_video(tmp_path / f"a.{suffix}", 3, codec=codec, pix_fmt=pix_fmt, size=size)
    sink = play(made, shape=(size[1], size[0], 3))
    expected = picture(2, *size)
    assert (sink.frames[2].width_px, sink.frames[2].height_px) == size
    difference = np.abs(sink.pictures[2].astype(int) - expected.astype(int))
    assert difference.mean() < 4, (difference.mean(), difference.max())


def test_c5_white_is_white_in_both_ranges(tmp_path: Path) -> None:
    """C5: limited and full range give the same white."""
    white = lambda index, width, height: np.full((height, width, 3), 255, np.uint8)  # noqa: E731
    limited = play(write_video(tmp_path / "l.mp4", 2, make=white))
    full = play(write_video(tmp_path / "f.avi", 2, codec="mjpeg", pix_fmt="yuvj420p", make=white))
    assert limited.pictures[0].min() >= 253
    assert full.pictures[0].min() >= 253


def test_a_paced_file_is_played_at_its_own_speed(tmp_path: Path) -> None:
    """Frames come when they are due; capture is that moment, whatever decoding takes."""
    made = write_video(tmp_path / "a.mp4", 20, fps=20)
    begin_s = time.monotonic()
    sink = play(made, offline=False)
    took_s = time.monotonic() - begin_s
    assert 0.8 < took_s < 4.0
    captures = [f.capture_ns for f in sink.frames]
    assert len(captures) == 20
    steps = np.diff(captures) / MS
    assert np.allclose(steps, 50, atol=0.01)
    late = [(f.decoded_ns - f.capture_ns) / MS for f in sink.frames]
    assert min(late) >= 0
    assert np.median(late) < 50


def test_target_fps_goes_by_media_time(tmp_path: Path) -> None:
    """25 fps at a target of 10: an even ten a second."""
    sink = play(write_video(tmp_path / "a.mp4", 50), target_fps=10.0)
    assert len(sink.frames) == 20
    assert set(np.diff([f.media_time_ns for f in sink.frames]) / MS) <= {80.0, 120.0}
    assert [f.seq for f in sink.frames] == list(range(20))


def test_a_looping_file_goes_on_counting(tmp_path: Path) -> None:
    with stream(write_video(tmp_path / "a.mp4", 5), offline=True, loop=True) as sink:
        while len(sink.frames) < 23:
            time.sleep(0.01)
    times = [f.media_time_ns for f in sink.frames]
    assert [f.seq for f in sink.frames] == list(range(len(times)))
    assert set(np.diff(times)) == {40 * MS}
    assert sink.levels[:12] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


def test_a_file_is_resumed_where_it_was(tmp_path: Path) -> None:
    made = write_video(tmp_path / "a.mp4", 50, options={"g": "10"})
    sink = play(made, first_seq=21, resume_media_ns=20 * 40 * MS)
    assert sink.levels == list(range(21, 50))
    assert sink.frames[0].seq == 21
    assert sink.frames[0].media_time_ns == 21 * 40 * MS


def test_without_a_free_slot_the_newest_frame_waits_and_older_ones_give_way(tmp_path: Path) -> None:
    with stream(write_video(tmp_path / "a.mp4", 30, fps=50), slots=2, offline=False) as sink:
        sink.hold = True
        assert sink.done.wait(10)
    assert [f.seq for f in sink.frames] == [0, 1]
    assert sink.rooms >= 1
    assert [seq for seq, _ in sink.drops] == list(range(2, 30))
    assert {reason for _, reason in sink.drops} == {"overload"}


def test_a_granted_slot_is_filled_with_the_frame_that_waits(tmp_path: Path) -> None:
    with stream(write_video(tmp_path / "a.mp4", 30, fps=50), slots=1, offline=False) as sink:
        sink.hold = True
        while not sink.frames:
            time.sleep(0.005)
        rooms = sink.rooms
        while sink.rooms == rooms:
            time.sleep(0.005)
        assert sink.worker is not None
        sink.worker.grant(1, [1])
        assert len(sink.frames) >= 2
        assert sink.done.wait(10)
    seqs = sorted([f.seq for f in sink.frames] + [seq for seq, _ in sink.drops])
    assert seqs == list(range(30))


def test_offline_waits_for_slots_and_drops_nothing(tmp_path: Path) -> None:
    with stream(write_video(tmp_path / "a.mp4", 30), slots=3, offline=True) as sink:
        sink.hold = True
        time.sleep(0.5)
        assert len(sink.frames) == 3
        sink.hold = False
        assert sink.worker is not None
        sink.worker.grant(1, [0, 1, 2])
        assert sink.done.wait(10)
    assert sink.levels == list(range(30))
    assert not sink.drops


def test_a_stream_can_be_removed_in_every_state(tmp_path: Path) -> None:
    """A6: while it connects, plays, or waits for a slot."""
    before = threading.active_count()
    for offline in (True, False):
        with stream(CLIP, slots=1, offline=offline) as sink:
            sink.hold = True
            time.sleep(0.2)
            assert sink.worker is not None
            sink.worker.remove(1)
            sink.worker.remove(1)
            assert sink.done.wait(3)
    assert threading.active_count() <= before


def test_a_frame_that_can_not_be_converted_costs_that_frame(tmp_path: Path) -> None:
    seen = []

    def broken(rgb: np.ndarray, out: np.ndarray) -> tuple[float, ...]:
        seen.append(1)
        if len(seen) == 3:
            raise ValueError("this one is bad")
        return (1.0,)

    sink = play(write_video(tmp_path / "a.mp4", 6), preprocess=broken)
    assert [f.seq for f in sink.frames] == [0, 1, 3, 4, 5]
    assert sink.drops == [(2, "error")]
    assert sum(r.new_decode_errors for r in sink.reports) == 1


def test_a_file_with_a_phase_begins_in_phase(tmp_path: Path) -> None:
    """Frames of a paced file are due at the phase modulo the period, which is how cameras are kept apart."""
    made = write_video(tmp_path / "a.mp4", 20, fps=20)
    for phase_ns in (3 * MS, 37 * MS):
        sink = play(made, offline=False, target_fps=20.0, phase_ns=phase_ns)
        assert len(sink.frames) == 20
        assert {f.capture_ns % (50 * MS) for f in sink.frames} == {phase_ns}
