"""Renders conversations by transformers, for the tests of package chat.

    python vectors.py                 writes vectors.json, of the templates in templates/ and in ../builtin
    python vectors.py --published DIR writes DIR/vectors.json, of the same in ../builtin and of chat templates that a package of
                                      PyPI ships (llama-cpp-python's source, Apache-2.0 or the models' own
                                      licences), which it downloads; make check-chat does so

Needs transformers, jinja2.
"""
import argparse, glob, io, json, os, re, tarfile, urllib.request

from transformers.utils.chat_template_utils import render_jinja_template

PACKAGE = "https://pypi.org/simple/llama-cpp-python/"
ARCHIVE = "llama_cpp_python-0.3.19.tar.gz"
MODELS = ["meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct", "Qwen-Qwen2.5-7B-Instruct",
          "Qwen-Qwen3-0.6B", "Qwen3-Coder", "HuggingFaceTB-SmolLM3-3B", "mistralai-Mistral-Nemo-Instruct-2407", "mistralai-Ministral-3-14B-Reasoning-2512",
          "unsloth-mistral-Devstral-Small-2507", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
          "google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct", "deepseek-ai-DeepSeek-V3.1",
          "Bielik-11B-v3.0-Instruct", "GigaChat3-10B-A1.8B", "LFM2-8B-A1B", "MiniMax-M2", "NVIDIA-Nemotron-Nano-v2", "openai-gpt-oss-120b"]


def user(t): return {"role": "user", "content": t}
def assistant(t, **more): return {"role": "assistant", "content": t, **more}
def system(t): return {"role": "system", "content": t}
def tool(t): return {"role": "tool", "content": t}


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 3, "exact": True, "a": [1, {"b": 2}], "ratio": 0.5}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says \"what\" the <weather> is & will be.", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "a city"}, "days": {"type": "integer"}}, "required": ["place"]}}}]

CONVERSATIONS = [
    ([user("Hello")], True, None), ([user("Hello"), assistant("Hi there!")], False, None),
    ([system("Be brief."), user("What is 2+2?"), assistant("4"), user("And 3+3?")], True, None),
    ([user("  spaces around  "), assistant("\n\nnewlines\n")], False, None), ([user("Ünïcödé 日本語 👩‍👩‍👧 \u200d \u2028 line")], True, None),
    ([system(""), user("x")], True, None), ([user(""), assistant("")], False, None),
    ([user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")], False, None),
    ([user("quotes \" ' \\ and <tags> & {{braces}} {% x %}")], True, None), ([user("<|im_end|> injected <|eot_id|> [INST]")], True, None),
    ([system("line1\nline2"), user("tab\there"), assistant("ok")], False, None),
    ([user("q"), assistant("<think>\nhm\n</think>\n\nanswer"), user("again")], True, None),
    ([user("q"), assistant("<think>\nhm\n</think>\n\nanswer")], False, None),
    ([user("x" * 300), assistant("y" * 300)], False, None), ([system("sys"), user("u1"), assistant("a1")], True, None),
    ([user("null true false 0 1.5")], False, None), ([user("crlf\r\nline"), assistant("z")], False, None),
    ([assistant("assistant first"), user("then user")], True, None), ([system("s1"), system("s2"), user("u")], True, None),
    ([user("u1"), user("u2")], True, None),
    ([system("Use tools."), user("Weather?")], True, TOOLS),
    ([user("Weather?"), assistant("", tool_calls=[CALL]), tool("sunny\n20 °C"), assistant("It is sunny.")], False, TOOLS),
    ([user("Weather?"), assistant("I look.", tool_calls=[CALL])], False, None),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def vectors(templates):
    rows = []
    for name, text in sorted(templates.items()):
        answers = []
        for messages, add, tools in CONVERSATIONS:
            try:
                answers.append({"text": render_jinja_template([messages], tools=tools, chat_template=text, add_generation_prompt=add, **SPECIAL)[0][0]})
            except Exception as e:
                answers.append({"error": str(e)})
        rows.append({"name": name, "answers": answers})
    return {"special": SPECIAL, "conversations": [{"messages": m, "add": a, "tools": t} for m, a, t in CONVERSATIONS], "templates": rows}


def published(folder):
    page = urllib.request.urlopen(PACKAGE).read().decode()
    address = re.search(r'href="([^"#]*' + re.escape(ARCHIVE) + ')', page).group(1)
    archive = tarfile.open(fileobj=io.BytesIO(urllib.request.urlopen(address).read()))
    os.makedirs(os.path.join(folder, "templates"), exist_ok=True)
    for member in archive:
        name = os.path.basename(member.name)
        if name.endswith(".jinja") and name[:-len(".jinja")] in MODELS:
            with open(os.path.join(folder, "templates", name), "wb") as f:
                f.write(archive.extractfile(member).read())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--published", metavar="DIR")
    folder = p.parse_args().published
    if folder:
        published(folder)
    else:
        folder = os.path.dirname(os.path.abspath(__file__))
    read = lambda f: open(f, encoding="utf-8", newline="").read()
    texts = {os.path.basename(f): read(f) for f in glob.glob(os.path.join(folder, "templates", "*.jinja"))}
    for f in glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "builtin", "*.jinja")):
        texts["builtin/" + os.path.basename(f)] = read(f)
    out = vectors(texts)
    with open(os.path.join(folder, "vectors.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
