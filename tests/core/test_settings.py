"""Settings: which layer wins, what they are called, and what is refused."""

from pathlib import Path

import pytest

import ccheck
from ccheck.core.adjust import Changes, filled, resolved
from ccheck.core.errors import UsageError
from ccheck.core.profiles import StoreProfile, profile_of
from ccheck.core.recipe import load_recipe
from ccheck.core.settings import SECRETS, Settings, config_files, remember, resolve, variables
from ccheck.core.stages import LateStage, ListwiseStage, ModelStage


def write(text: str, *, user: bool = False) -> Path:
    users, here = config_files()
    file = users if user else here
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_each_layer_wins_over_the_next_setting_by_setting():
    """Taken away one by one, from the strongest to the weakest."""
    users, here = write('device = "users"', user=True), write('device = "here"')
    environ = {"CCHECK_DEVICE": "environment"}

    def seen(flags: dict[str, str | None], environ: dict[str, str]) -> tuple[str | None, str]:
        resolved = resolve(flags, environ)
        return resolved.settings.device, resolved.settings.origins["device"]

    assert seen({"device": "flag"}, environ) == ("flag", "flag")
    assert seen({"device": None}, environ) == ("environment", "CCHECK_DEVICE")
    assert seen({}, {"CCHECK_DEVICE": ""}) == ("here", str(here))  # set to nothing is not set
    here.unlink()
    assert seen({}, {}) == ("users", str(users))
    users.unlink()
    assert seen({}, {}) == (None, "default")
    write('store = "local:users"\nrecipe = "users"', user=True)
    write('store = "here"')
    settings = resolve({"device": "cpu"}, {"CCHECK_CACHE_BYTES": "5"}).settings
    assert (settings.store, settings.recipe, settings.device, settings.cache_bytes) == ("here", "users", "cpu", 5)


def test_every_setting_has_its_variable_and_the_more_particular_name_wins():
    for name, field in Settings.model_fields.items():
        assert variables(name)[0] == f"CCHECK_{name.upper()}" and field.description
    environ = dict.fromkeys(("ES_LOCAL_URL", "ELASTIC_URL", "ES_URL", "ELASTICSEARCH_URL"), "http://other")
    environ["CCHECK_ELASTICSEARCH_URL"] = "http://mine"
    for name in ("CCHECK_ELASTICSEARCH_URL", "ELASTICSEARCH_URL", "ES_URL", "ELASTIC_URL", "ES_LOCAL_URL"):
        assert resolve({}, environ).settings.origins["elasticsearch_url"] == name
        del environ[name]


def test_tables_and_types_of_a_file():
    write('[elasticsearch]\nverify_certs = false\ntimeout = 2.5\nhosts = ["http://a", "http://b"]\n[cache]\nbytes = 0')
    settings = resolve({}, {}, trust_folder=True).settings
    assert settings.elasticsearch_verify_certs is False and settings.elasticsearch_timeout == 2.5
    assert settings.elasticsearch_hosts == ("http://a", "http://b") and settings.cache_bytes == 0
    settings = resolve({}, {"ES_HOSTS": "http://a, http://b", "ES_VERIFY_CERTS": "true"}).settings
    assert settings.elasticsearch_hosts == ("http://a", "http://b") and settings.elasticsearch_verify_certs is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stroe = "x"', r"unknown setting 'stroe': did you mean 'store'\?"),
        ("[elasticsearch]\nverify_cert = true", "did you mean 'elasticsearch_verify_certs'"),
        ("[query]\nk = 3", "unknown setting 'query_k'"),
        ("not toml", r"can't be read.*line 1"),
        *((text, "stores") for text in ('[stores.papers]\ntitel = "a"', "[stores.papers]\ntitle = 1", "stores = 1")),
        ('[stores]\npapers = "x"', "stores"),
    ],
)
def test_a_file_with_what_is_unknown(text, message):
    file = write(text)
    with pytest.raises(UsageError, match=message) as raised:
        resolve({}, {}, trust_folder=True)
    assert str(file) in str(raised.value)


def test_a_folder_of_that_name_is_no_file():
    config_files()[1].mkdir()
    assert resolve({}, {}).settings.origins["store"] == "default"


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_in_a_file_is_refused_and_one_of_the_environment_not_shown(name):
    table, _, key = name.partition("_")
    for text in (f'{name} = "s3cret"', f'[{table}]\n{key} = "s3cret"'):
        write(text)
        with pytest.raises(UsageError, match="environment only") as raised:
            resolve({}, {})
        assert "s3cret" not in str(raised.value)
    config_files()[1].unlink()
    resolved = resolve({}, {"ES_API_KEY": "s3cret", "ES_PASSWORD": "s3cret"})
    assert "s3cret" not in f"{resolved!r} {resolved.settings} {resolved.settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"CCHECK_CACHE_BYTES": "many"}, "cache_bytes"),
        ({"CCHECK_CACHE_BYTES": "-1"}, "cache_bytes"),
        ({"ES_TIMEOUT": "0"}, "elasticsearch_timeout"),
        ({"ES_VERIFY_CERTS": "perhaps"}, "elasticsearch_verify_certs"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_source(environ, name):
    with pytest.raises(UsageError, match=rf"the setting {name} \(from {next(iter(environ))}\)"):
        resolve({}, environ)


def test_open_takes_settings_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("CCHECK_RECIPE", "dense")
    with ccheck.open(str(tmp_path / "store"), recipe="bm25") as checker:
        assert checker.recipe.name == "bm25" and checker.settings.store == str(tmp_path / "store")
    with pytest.raises(UsageError, match=r"unknown key recpie: did you mean 'recipe'\?"):
        ccheck.open(recpie="bm25")


def test_profiles_of_stores_come_from_both_files():
    write('[stores.papers]\ntitle = "headline"\n[stores.notes]\ntext = "body"', user=True)
    write('[stores."https://host:443/papers"]\ntext = ["abstract", "body.en"]\ngroup = ""')
    profiles = resolve({}, {}).settings.stores
    assert profiles.keys() == {"papers", "notes", "https://host:443/papers"}
    assert profile_of(profiles, "https://host:443/papers", "papers").text == ("abstract", "body.en")
    assert profile_of(profiles, "https://other:443/papers", "papers").title == "headline"
    assert profile_of(profiles, "https://other:443/more", "more") == StoreProfile()
    (named,) = resolve({}, {"CCHECK_STORES": '{"papers": {"vector": "v"}}'}).settings.stores.values()
    assert named == StoreProfile(vector="v")
    written = StoreProfile(title='a "\x7f\\é', text=("b",), group="")
    users = remember("https://me:word@host:443/more", written)
    assert users == config_files()[0] and "word" not in users.read_text("utf-8")
    assert resolve({}, {}).settings.stores == profiles | {"https://***@host:443/more": written}
    with pytest.raises(UsageError, match="already has a profile of papers"):
        remember("papers", written)
    inline = write('stores = {papers = {text = "body"}}', user=True)
    with pytest.raises(UsageError, match=r"(?s)in one line.*\[stores.\"other\"\]"):
        remember("other", written)
    assert inline.read_text() == 'stores = {papers = {text = "body"}}'


# -- what flags and settings change of a recipe


def change(recipe: str = "default", rerank: str | None = None, **changes: object):
    settings = resolve({"recipe": recipe, "rerank": rerank}).settings
    return resolved(settings, Changes(**changes))  # type: ignore[arg-type]


def test_flags_name_a_depth_for_rerankers_and_a_judge():
    assert change() == load_recipe("default")
    assert [stage.depth for stage in change(rerank_depth=7).rerankers.values()] == [7, 7]
    with pytest.raises(UsageError, match="--rerank"):
        change("bm25", rerank_depth=7)
    assert change(llm="gpt").verdict.method == "llm" and change(llm="gpt").verdict.model == "gpt"
    assert change(stance="folder").verdict.method == "stance" and change(stance="folder").verdict.model == "folder"
    assert change(verdict="none").verdict.method == "none"
    with pytest.raises(UsageError, match="two judges"):
        change(llm="gpt", stance="folder")


def test_a_named_reranker_takes_the_place_of_the_recipes_which_can_have_several():
    (stage,) = change(rerank="some/model").rerankers.values()
    assert stage == ModelStage(model="some/model", depth=50, required=True)
    late, stage = change(rerank="auto").rerankers.values()
    assert isinstance(late, LateStage) and isinstance(stage, ModelStage) and not stage.required
    (stage,) = change("bm25", rerank="http://127.0.0.1:8080").rerankers.values()
    assert stage == ModelStage(model="http://127.0.0.1:8080")
    assert change(rerank="none").rerankers == {}
    assert change("bm25", rerank="late").rerankers == {"late": load_recipe("default").rerankers["late"]}
    (file := Path("mine.toml")).write_text(
        '[retrievers.bm25]\n[rerankers.first]\nmodel = "a"\ndepth = 50\n[rerankers.listwise]\ndepth = 20\nllm = "m"\n'
        '[rerankers.last]\nkind = "ensemble"\nmodels = ["a", "b"]\n'
    )
    stages = load_recipe(str(file)).rerankers
    assert list(stages) == ["first", "listwise", "last"] and isinstance(stages["listwise"], ListwiseStage)
    assert [stage.depth for stage in change(str(file), rerank_depth=9).rerankers.values()] == [9, 9, 9]


def test_what_settings_choose_is_filled_in_where_the_recipe_names_none():
    (file := Path("mine.toml")).write_text(
        'extends = "bm25"\n[rerankers.listwise]\n[rerankers.second]\nkind = "listwise"\nllm = "own"\n'
        '[figures.runs.one]\nkind = "chunk-guided"\norder = "llm"\n[verdict]\nmethod = "auto"\n'
    )
    settings = resolve({"recipe": str(file), "llm_model": "of-settings"}).settings
    made = resolved(settings)
    assert [stage.llm for stage in made.rerankers.values()] == ["of-settings", "own"]  # type: ignore[union-attr]
    assert made.figures is not None and made.figures.runs["one"].llm == "of-settings"  # type: ignore[union-attr]
    assert (made.verdict.method, made.verdict.model) == ("llm", "of-settings")
    assert filled(made, settings) == made
    other = resolved(settings, Changes(llm="of-flag"))
    assert (other.verdict.model, other.figures.runs["one"].llm) == ("of-flag", "of-flag")  # type: ignore[union-attr]
