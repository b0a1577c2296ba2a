"""Attacks by folders, recipes and servers: code beside weights, keys sent elsewhere, files put into prompts."""

from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl, program
from echoing_servers import all_headers, judging, listening, ranking
from http_stub import Asked
from tiny_rerankers import make_encoder

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.keys import key_for
from ccheck.core.models import chosen, find_model
from ccheck.core.recipe import load_recipe, models_used, recipe_names
from ccheck.core.settings import config_files, resolve
from ccheck.core.stages import LateStage, Sparse
from ccheck.encode.dense import DEFAULT_MODEL
from ccheck.rerank.open import BEST_MODEL
from ccheck.verdict.classifier import DEFAULT_STANCE_MODEL

CLAIM = "vaccines cause autism"
KEY = "key-0123456789abcdef"


def test_a_language_model_of_the_folder_gets_no_key(papers, monkeypatch):
    """Though its user allowed the folder's settings."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-user")
    with listening(judging) as server:
        Path("ccheck.toml").write_text(f'[llm]\nbase_url = "{server.url}/v1"\nmodel = "m"\n')
        query = ("query", CLAIM, *BM25, "--store", papers, "-k", 1, "--json")
        assert ccheck(*query).code == 2 and not server.asked
        ran = ccheck("--trust-folder", *query)
        assert server.asked and KEY not in all_headers(server) and "org-of-the-user" not in all_headers(server)
        (said,) = (warning for warning in ran.objects[0]["warnings"] if "OPENAI_API_KEY was not sent" in warning)
        assert server.url in said and "set OPENAI_BASE_URL" in said
        # The user's own word for that server.
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        ran = ccheck("--trust-folder", "query", "tea cures all", *query[2:])
        assert ran.objects[0]["warnings"] == []
        assert f"Bearer {KEY}" in all_headers(server)


def test_a_reranker_of_a_recipe_gets_no_key(papers, monkeypatch, tmp_path):
    """Not by a recipe on the command line, nor by one of the folder; and the user hears where claims go."""
    monkeypatch.setenv("CCHECK_RERANK_API_KEY", KEY)
    with listening(ranking) as server:
        url = f"{server.url}/v1/rerank"
        query = ("query", CLAIM, "--store", papers, "--verdict", "none", "--json")
        for name, stage in (
            ("one", f'rerank]\nmodel = "{url}"'),
            ("two", f'ensemble]\nmodels = ["{url}", "{url}?model=b"]'),
        ):
            Path(f"{name}.toml").write_text(f'extends = "bm25"\n[rerankers.{stage}\n')
            ran = ccheck(*query, "--recipe", f"{name}.toml")
            assert ran.code == 0 and server.asked and KEY not in all_headers(server)
            (said,) = ran.objects[0]["warnings"]
            assert f"claims and passages are sent to {server.url}" in said
            assert "CCHECK_RERANK_API_KEY was not sent" in said
        # Where the user named that server, by whichever layer, it has the key.
        for layer in ("flag", "environment", "file"):
            server.asked.clear()
            if layer == "environment":
                monkeypatch.setenv("CCHECK_RERANK_URL", server.url)
            if layer == "file":
                monkeypatch.delenv("CCHECK_RERANK_URL")
                config_files()[0].parent.mkdir(parents=True)
                config_files()[0].write_text(f'rerank_url = "{server.url}/"')
            flag = (*BM25, "--rerank", url) if layer == "flag" else ("--recipe", "one.toml")
            ran = ccheck(*query, *flag)
            assert f"Bearer {KEY}" in all_headers(server) and ran.objects[0]["warnings"] == [], layer


def test_a_reranker_that_refuses_says_that_it_had_no_key(papers, monkeypatch):
    monkeypatch.setenv("CCHECK_RERANK_API_KEY", KEY)
    with listening(lambda asked: (401, {"error": "who are you"})) as server:
        Path("mine.toml").write_text(f'extends = "bm25"\n[rerankers.rerank]\nmodel = "{server.url}/v1/rerank"\n')
        ran = ccheck("query", CLAIM, "--store", papers, "--recipe", "mine.toml", "--verdict", "none", "--json")
        assert ran.code == 6 and "401" in ran.err and "set CCHECK_RERANK_URL" in ran.err, ran
        assert KEY not in all_headers(server)


def unauthorized(asked: Asked) -> tuple[int, object]:
    return 401, {"error": {"type": "security_exception", "reason": "missing credentials"}}


@pytest.mark.parametrize(
    "said", ['store = "{url}/papers"', 'store = "elasticsearch:papers"\n[elasticsearch]\nurl = "{url}"']
)
def test_an_elasticsearch_of_the_folder_gets_no_key(said, monkeypatch):
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", KEY)
    with listening(unauthorized) as server:
        Path("ccheck.toml").write_text(said.format(url=server.url))
        assert ccheck("index", "info").code == 2 and not server.asked
        for command in (("index", "info"), ("query", CLAIM), ("doctor",)):
            ran = ccheck("--trust-folder", *command)
            assert "ELASTICSEARCH_API_KEY was not sent" in ran.out + ran.err, ran
        monkeypatch.delenv("ELASTICSEARCH_API_KEY")
        monkeypatch.setenv("ELASTICSEARCH_USERNAME", "elastic")
        monkeypatch.setenv("ELASTICSEARCH_PASSWORD", "password-of-the-user")
        assert "ELASTICSEARCH_PASSWORD was not sent" in ccheck("--trust-folder", "index", "info").err
        assert server.asked and all("authorization" not in one.headers for one in server.asked)
        # A server's own user and password in its address are the folder's to send.
        Path("ccheck.toml").write_text(said.format(url=server.url.replace("//", "//a:b@")))
        ccheck("--trust-folder", "index", "info")
        assert server.asked[-1].headers["authorization"] == "Basic YTpi"
        ccheck("--trust-folder", "index", "info", "--store", f"{server.url}/papers")
        assert server.asked[-1].headers["authorization"] == "Basic ZWxhc3RpYzpwYXNzd29yZC1vZi10aGUtdXNlcg=="


@pytest.mark.parametrize(
    ("named", "asked", "sent"),
    [
        ("https://host/v1", "https://host/v1", True),
        ("https://HOST:443/v1", "https://host/other", True),
        ("https://host/v1", "http://host/v1", False),  # anyone on the way could read it
        ("https://host/v1", "https://host:8443/v1", False),
        ("https://host/v1", "https://host.evil/v1", False),
        ("https://host/v1", "https://host@evil/v1", False),
        ("https://host/v1", "https://evil/host", False),
        ("https://host/v1", "nonsense", False),
        ("https://[", "https://[", False),
    ],
)
def test_the_same_server_is_of_the_same_scheme_host_and_port(named, asked, sent):
    settings = resolve({}, {"OPENAI_BASE_URL": named, "OPENAI_API_KEY": KEY}).settings
    assert (key_for(settings, "llm_api_key", asked).value == KEY) is sent


def test_a_key_without_a_server_is_for_the_default_one_only_and_a_recipe_s_own_examples_are_its_own(tmp_path):
    Path("ccheck.toml").write_text('llm_base_url = "http://127.0.0.1:1/v1"')
    settings = resolve({}, {"OPENAI_API_KEY": KEY}, trust_folder=True).settings
    assert key_for(settings, "llm_api_key", settings.llm_base_url).value is None
    assert key_for(settings, "llm_api_key", "https://api.openai.com/v1").value == KEY
    own = resolve({}, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://own/v1"}).settings
    assert key_for(own, "llm_api_key", "https://api.openai.com/v1").value is None
    own = jsonl(tmp_path / "own.jsonl", {"claim": "a", "evidence": "b", "label": "SUPPORTS"})
    (recipe := tmp_path / "mine.toml").write_text('extends = "bm25"\n[verdict]\nexamples = "own.jsonl"\n')
    assert load_recipe(str(recipe)).verdict.examples == own.resolve()


@pytest.mark.parametrize("where", ["outside", "above", "link", "working folder"])
@pytest.mark.parametrize("table", ["verdict", "rerankers.listwise"])
def test_a_recipe_puts_no_file_of_the_user_s_into_prompts(where, table, tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    folder.mkdir()
    private = jsonl(tmp_path / "private.jsonl", {"claim": "a", "evidence": "secret", "label": "SUPPORTS"})
    (folder / "link.jsonl").symlink_to(private)
    named = {"outside": str(private), "above": "../private.jsonl", "link": "link.jsonl"}.get(where, private.name)
    monkeypatch.chdir(tmp_path)
    (recipe := folder / "mine.toml").write_text(f'extends = "bm25"\n[{table}]\nexamples = "{named}"\n')
    with pytest.raises(InvalidData, match="Copy it there"):
        load_recipe(str(recipe))


def test_modules_of_the_folder_are_not_imported():
    """As `python -m` would, which looks in the current folder first."""
    for name in ("click", "rich", "pydantic", "tantivy"):
        Path(f"{name}.py").write_text("open('ran', 'w').close()\n")
    ran = program("config")
    assert ran.code == 0 and not Path("ran").exists(), ran


def test_names_that_ccheck_chooses_are_known_and_no_folders_of_a_stranger():
    """A folder of weights called as the default model would judge and rank unasked."""
    for name in (DEFAULT_STANCE_MODEL, DEFAULT_MODEL, "all-MiniLM-L6-v2"):
        folder = make_encoder(Path(name), architecture="bert")
        assert find_model(f"./{name}").path == folder.resolve()
        try:
            assert find_model(name).origin == "package"
        except NotFound as error:
            assert "not installed" in str(error)
    recipes = [load_recipe(name) for name in recipe_names()]
    recipes += [load_recipe(f"{recipe.name}:{ablation}") for recipe in recipes for ablation in recipe.ablations]
    named = {BEST_MODEL, DEFAULT_STANCE_MODEL, DEFAULT_MODEL, LateStage().model, Sparse().model}
    named |= {model for recipe in recipes for model in models_used(recipe) if "/" in model}
    named |= {made.base for recipe in recipes for made in recipe.fine_tuned.values()}
    assert named == chosen()
