"""A stranger's folder chooses nothing that matters until the user allows it."""

import json
import os
import stat
from pathlib import Path

import pytest
from cli_runs import ccheck, jsonl

import ccheck as package
from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.settings import SECRETS, Settings, accept, config_files, resolve, unasked
from ccheck.core.trust import trust_file

HARMLESS = {
    "store": "papers",
    "recipe": "bm25",
    "rerank": "late",
    "device": "cpu",
    "cache_bytes": 0,
    "record": False,
    "elasticsearch_compress": True,
    "stores": {"papers": {"title": "headline", "text": ["body"], "vector": "v", "metadata": ["year"], "group": ""}},
    **{f"{server}_timeout": 3 for server in ("elasticsearch", "rerank", "llm")},
    **{f"{server}_retry_seconds": 3 for server in ("elasticsearch", "rerank", "llm")},
    **{f"{server}_concurrency": 2 for server in ("elasticsearch", "llm")},
}
HARMFUL = {
    "store": ["../papers", "/tmp/papers", "~/papers", "local:work", "elasticsearch:x", "http://127.0.0.1:1/x", "link"],
    "recipe": ["mine.toml", "./bm25", "/tmp/x.toml"],
    "rerank": ["http://127.0.0.1:1/rerank", "some/model", "./model"],
    **{name: ["./model"] for name in ("embedding_model", "stance_model", "llm_model")},
    **{name: ["here"] for name in ("data_dir", "cache_dir", "prompts_dir", "elasticsearch_username")},
    **{f"elasticsearch_{name}": ["mine.pem"] for name in ("client_cert", "client_key", "ca_certs")},
    **{name: ["https://127.0.0.1:1/v1"] for name in ("elasticsearch_url", "rerank_url", "llm_base_url", "public_url")},
    **{name: [10**9] for name in ("llm_max_tokens", "llm_max_calls", "llm_max_cost")},
    **{name: [0] for name in ("llm_prompt_price", "llm_completion_price")},
    "embedding_precision": ["bfloat16"],
    "elasticsearch_hosts": [["http://127.0.0.1:1"]],
    "elasticsearch_ca_fingerprint": ["00"],
    "elasticsearch_verify_certs": [False],
    "llm_currency": ["EUR"],
    "record": [True],
    "record_days": [1],
    "stores": [{"papers": {"model": "./model"}}],
}


def here(text: str) -> Path:
    file = Path("ccheck.toml")
    file.write_text(text, encoding="utf-8")
    return file


def toml(value: object) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"


def test_every_setting_is_one_or_the_other():
    assert HARMLESS.keys() | HARMFUL.keys() | set(SECRETS) == Settings.model_fields.keys()
    assert {name for name in Settings.model_fields if unasked(name)} == HARMLESS.keys()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_takes_effect(name):
    here(f"{name} = {toml(HARMLESS[name])}")
    resolved = resolve({}, {})
    assert resolved.settings.origins[name] == "ccheck.toml" and not resolved.pending


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in HARMFUL.items() for value in values])
def test_what_is_not_waits_for_consent(name, value, tmp_path, monkeypatch):
    monkeypatch.delenv(f"CCHECK_{name.upper()}", raising=False)
    Path("link").symlink_to(tmp_path.parent)
    here(f"{name} = {toml(value)}")
    for give in (lambda: resolve({}, {}), lambda: resolve({}, {"CCHECK_TRUST_FOLDER": "0"}), package.open):
        with pytest.raises(UsageError, match=rf"ccheck.toml sets {name} = .*\nhint: .*config trust.*trust_folder=True"):
            give()
    shown = resolve({}, {}, show_pending=True)
    assert list(shown.pending) == [name] and shown.settings.origins[name] == "default"
    default = Settings.model_fields[name].get_default(call_default_factory=True)
    assert getattr(shown.settings, name) == default
    for taken in (resolve({}, {}, trust_folder=True), resolve({}, {"CCHECK_TRUST_FOLDER": "1"})):
        assert taken.settings.origins[name] == "ccheck.toml" and not taken.pending


def test_what_the_user_says_needs_no_consent():
    """Where a flag or the environment wins, the file has no say; and the user's own file is the user's."""
    here('recipe = "mine.toml"\nllm_base_url = "http://127.0.0.1:1"')
    taken = resolve({"recipe": "bm25"}, {"OPENAI_BASE_URL": "http://own"})
    assert (taken.settings.recipe, taken.settings.llm_base_url) == ("bm25", "http://own")
    Path("ccheck.toml").unlink()
    users = config_files()[0]
    users.parent.mkdir(parents=True)
    users.write_text('recipe = "mine.toml"')
    assert resolve({}, {}).settings.recipe == "mine.toml"


def test_consent_is_for_the_file_as_it_is(tmp_path, monkeypatch):
    """As with direnv: a change, another folder and a withdrawal end it."""
    file = here('recipe = "mine.toml"')
    accept()
    assert resolve({}, {}).settings.recipe == "mine.toml"
    assert stat.S_IMODE(trust_file().stat().st_mode) == 0o600
    file.write_text('recipe = "mine.toml" ')
    with pytest.raises(UsageError):
        resolve({}, {})
    accept()
    assert resolve({}, {}).settings.recipe == "mine.toml"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    here('recipe = "mine.toml" ')
    with pytest.raises(UsageError):
        resolve({}, {})
    monkeypatch.chdir(tmp_path)
    accept(withdraw=True)
    with pytest.raises(UsageError):
        resolve({}, {})
    for broken in ("{", "[]"):  # a list that allows nothing
        trust_file().write_text(broken)
        with pytest.raises(InvalidData, match="trusted"):
            resolve({}, {})


def test_consent_is_for_recipes_and_prompts_as_they_are():
    """What decides as much as the file itself."""
    Path("prompts").mkdir()
    mine, base, prompt = Path("mine.toml"), Path("base.toml"), Path("prompts/one-step.txt")
    mine.write_text('extends = "base.toml"')
    base.write_text('extends = "bm25"')
    prompt.write_text("a")
    here('recipe = "mine.toml"\nprompts_dir = "prompts"')
    accept()
    resolve({}, {})
    for changed in (mine, base, prompt):
        before = changed.read_text()
        changed.write_text(f"{before}\n")
        with pytest.raises(UsageError):
            resolve({}, {})
        changed.write_text(before)
        resolve({}, {})
    Path("prompts/batch.txt").write_text("new")
    with pytest.raises(UsageError):
        resolve({}, {})
    mine.unlink()
    accept()
    mine.write_text('extends = "bm25"')
    with pytest.raises(UsageError):
        resolve({}, {})


def test_commands_stop_and_say_how_to_go_on(papers):
    here('llm_base_url = "http://me:of-the-folder@127.0.0.1:1/v1"')
    claims = jsonl(Path("claims.jsonl"), {"_id": "1", "text": "x"})
    for command in ("query", "x", "--store", papers), ("ingest", claims, "--store", "s"), ("demo",), ("index", "list"):
        ran = ccheck(*command)
        assert ran.code == 2 and "ccheck config trust" in ran.err and "of-the-folder" not in ran.err, ran
        assert ran.out == ""
    assert not Path("s").exists()


def test_looking_is_allowed_and_shows_what_waits(papers, no_models):
    here('store = "papers"\nllm_base_url = "http://me:of-the-folder@127.0.0.1:1/v1"')
    for command in ("--help",), ("recipes", "list"), ("config",), ("doctor", "--store", papers):
        ran = ccheck(*command)
        assert ran.code == (2 if command[0] == "doctor" else 0) and "of-the-folder" not in ran.out + ran.err, ran
        assert ("llm_base_url = " in ran.out + ran.err) == (command[0] in ("config", "doctor"))
    default, folder = (one for one in ccheck("config", "--json").objects if one["name"] == "llm_base_url")
    assert (default["value"], default["from"]) == ("https://api.openai.com/v1", "default")
    assert (folder["value"], folder["from"]) == ("http://***@127.0.0.1:1/v1", "ccheck.toml") and folder["pending"]


def test_consent_by_command_and_flag(papers):
    here('recipe = "mine.toml"')
    Path("mine.toml").write_text('extends = "bm25"')
    query = ("query", "vaccines cause autism", "--store", papers, "--verdict", "none", "--json")
    assert ccheck(*query).code == 2
    once = ccheck("--trust-folder", *query)
    assert once.code == 0 and once.objects[0]["recipe"] == "mine"
    with package.open(str(papers), trust_folder=True) as checker:
        assert checker.recipe.name == "mine"
    assert ccheck(*query).code == 2
    trusted = ccheck("config", "trust")
    assert trusted.code == 0 and "sets recipe = mine.toml" in trusted.err
    assert ccheck(*query).objects[0]["recipe"] == "mine"
    assert ccheck("config", "distrust").code == 0
    assert ccheck(*query).code == 2
    assert ccheck("config", "distrust").code == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_keeps_nobody_waiting():
    os.mkfifo("ccheck.toml")
    with pytest.raises(UsageError, match="it is not a file"):
        resolve({}, {})


@pytest.mark.parametrize("data", [b"a = " + b"[" * 100_000, b"#" * (2 << 20), b"\xff\xfe"])
def test_a_file_that_is_too_much_or_no_text(data):
    Path("ccheck.toml").write_bytes(data)
    with pytest.raises(UsageError, match="can't be read"):
        resolve({}, {})


def test_steering_characters_are_not_printed():
    here('recipe = "a\\u001b[2Jb\\u202e"')
    ran = ccheck("index", "list")
    assert ran.code == 2 and "\x1b" not in ran.err and "\u202e" not in ran.err
