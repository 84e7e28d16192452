# pyright: reportPrivateUsage=false
# A private function is replaced here, since files do not change on cue.
import os
from pathlib import Path

import pytest

from curtilage.inference import modelfile
from curtilage.inference.errors import ModelDigestError, ModelFileError
from curtilage.inference.modelfile import (
    LentModel,
    open_model_file,
    verify_model_file,
)
from support.byte_model import sha256_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(3 << 20))
    return path


def test_verify_accepts_the_named_file(file: Path) -> None:
    with verify_model_file(file, sha256_of(file).upper()) as model:
        assert (model.sha256, model.size_bytes) == (sha256_of(file), 4 + (3 << 20))
        model.check_unchanged()


def test_verify_refuses_another_digest(file: Path) -> None:
    with pytest.raises(ModelDigestError) as refusal:
        verify_model_file(file, "00" * 32)
    assert (refusal.value.expected, refusal.value.found) == ("00" * 32, sha256_of(file))


@pytest.mark.parametrize("digest", ["", "00", "zz" * 32, "00" * 33])
def test_verify_refuses_what_is_no_digest(file: Path, digest: str) -> None:
    with pytest.raises(ModelFileError, match="64 hex digits"):
        verify_model_file(file, digest)


def test_verify_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be opened"):
        verify_model_file(tmp_path / "none.gguf", "00" * 32)


def test_verify_refuses_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not a regular file"):
        verify_model_file(tmp_path, "00" * 32)


def test_verify_refuses_a_pipe_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        verify_model_file(tmp_path / "pipe.gguf", "00" * 32)


def test_verify_refuses_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be opened"):
        verify_model_file(tmp_path / ("x" * 300), "00" * 32)


def test_verify_refuses_what_is_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        verify_model_file(path, sha256_of(path))


def test_load_path_is_the_file_that_was_hashed(file: Path) -> None:
    data = file.read_bytes()
    with verify_model_file(file, sha256_of(file)) as model:
        other = file.with_suffix(".other")
        other.write_bytes(b"GGUF and something else")
        other.replace(file)
        assert model.load_path.read_bytes() == data
        # The same file, but its directory entry is gone, which is a change.
        with pytest.raises(ModelFileError, match="changed"):
            model.check_unchanged()


def test_check_refuses_a_file_written_to_since(file: Path) -> None:
    with verify_model_file(file, sha256_of(file)) as model:
        with file.open("r+b") as writer:
            writer.write(b"GGUX")
        with pytest.raises(ModelFileError, match="changed after"):
            model.check_unchanged()


def test_check_refuses_a_replaced_file_where_only_paths_can_be_loaded(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelfile, "DESCRIPTORS", Path("/nowhere"))
    with verify_model_file(file, sha256_of(file)) as model:
        assert model.load_path == file
        other = file.with_suffix(".other")
        os.link(file, other)
        file.unlink()
        file.write_bytes(other.read_bytes())
        with pytest.raises(ModelFileError, match="changed after"):
            model.check_unchanged()


def test_check_refuses_a_closed_file(file: Path) -> None:
    model = verify_model_file(file, sha256_of(file))
    model.close()
    with pytest.raises(ModelFileError, match="closed or removed"):
        model.check_unchanged()


def test_verify_refuses_a_file_that_grows_while_it_is_hashed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, calls = sha256_of(file), 0
    identity = modelfile._identity

    def changing(status: os.stat_result) -> tuple[int, int, int, int, int]:
        nonlocal calls
        calls += 1
        first, *rest = identity(status)
        return (first + calls, *rest)  # type: ignore[return-value]

    monkeypatch.setattr(modelfile, "_identity", changing)
    with pytest.raises(ModelFileError, match=modelfile.CHANGED_MEANWHILE):
        verify_model_file(file, digest)


def test_an_open_file_is_hashed_later_and_once(file: Path) -> None:
    with open_model_file(file, sha256_of(file)) as model:
        model.verify()
        file.write_bytes(b"GGUF and something else")
        model.verify()
        with pytest.raises(ModelFileError, match="changed"):
            model.check_unchanged()


def test_an_open_file_with_another_digest_is_refused_when_it_is_hashed(
    file: Path,
) -> None:
    with open_model_file(file, "00" * 32) as model:
        for _ in range(2):
            with pytest.raises(ModelDigestError):
                model.verify()


def test_a_reader_of_the_same_descriptor_changes_no_digest(file: Path) -> None:
    with open_model_file(file, sha256_of(file)) as model:
        descriptor = int(model.load_path.name)
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        model.verify()
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 1 << 20


def test_a_file_that_was_closed_cannot_be_hashed(file: Path) -> None:
    model = open_model_file(file, sha256_of(file))
    model.close()
    with pytest.raises(ModelFileError, match="cannot be read"):
        model.verify()


def test_a_lent_file_is_the_one_that_its_lender_hashes(file: Path) -> None:
    with open_model_file(file, "00" * 32) as lender:
        with LentModel(file, "00" * 32, lender.descriptor) as lent:
            lent.verify()  # its digest is the lender's business
        other = file.with_suffix(".other")
        other.write_bytes(file.read_bytes())
        other.replace(file)
        with (
            LentModel(file, "00" * 32, lender.descriptor) as lent,
            pytest.raises(ModelFileError, match="changed"),
        ):
            lent.verify()
