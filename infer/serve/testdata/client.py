"""Uses a server through the public openai client: client.py MODEL_URL CALLS_URL. The first has a small model, the second says a text with a call.

It prints one line for each check, and the tokens per second of one client and of eight at once.
"""

import json
import sys
import threading
import time

import openai

KEY = "0123456789abcdef"


def client(url, key=KEY, **more):
    return openai.OpenAI(base_url=url + "/v1", api_key=key, **more)


def check(what, holds, seen):
    print(("ok  " if holds else "FAIL"), what, "" if holds else repr(seen))
    if not holds:
        sys.exit(1)


def refused(what, kind, status, request):
    try:
        request()
    except kind as e:
        check(what, e.status_code == status and e.body and e.body["message"], e)
    else:
        check(what, False, "accepted")


def whole(c, name):
    hello = [{"role": "user", "content": "hello"}]
    a = c.completions.create(model=name, prompt="func main", max_tokens=12, seed=7, temperature=1)
    b = c.completions.create(model=name, prompt="func main", max_tokens=12, seed=7, temperature=1)
    check("completion", a.choices[0].text == b.choices[0].text and a.usage.completion_tokens <= 12, (a, b))
    parts = list(c.completions.create(model=name, prompt="func main", max_tokens=12, seed=7, temperature=1, stream=True))
    check("completion, streamed", "".join(p.choices[0].text for p in parts) == a.choices[0].text, parts)
    check("finish reason", parts[-1].choices[0].finish_reason == a.choices[0].finish_reason == "length", parts[-1])
    a = c.chat.completions.create(model=name, messages=hello, max_tokens=12, seed=7)
    check("chat", a.choices[0].message.role == "assistant" and a.usage.total_tokens == a.usage.prompt_tokens + a.usage.completion_tokens, a)
    parts = list(c.chat.completions.create(model=name, messages=hello, max_tokens=12, seed=7, stream=True, stream_options={"include_usage": True}))
    text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    check("chat, streamed", text == a.choices[0].message.content and parts[-1].usage == a.usage, parts)
    a = c.completions.create(model=name, prompt="func main", max_tokens=40, temperature=0)
    stop = next(x for x in a.choices[0].text[1:] if x.isascii())
    b = c.completions.create(model=name, prompt="func main", max_tokens=40, temperature=0, stop=[stop])
    check("stop text", b.choices[0].text == a.choices[0].text.split(stop)[0] and b.choices[0].finish_reason == "stop", (a, b))
    a = c.completions.create(model=name, prompt="x", max_tokens=3, extra_body={"top_k": 1, "repetition_penalty": 1.1})
    check("further sampling keys", a.usage.completion_tokens <= 3, a)
    check("models", [m.id for m in c.models.list()] == [name] and c.models.retrieve(name).id == name, "")
    refused("another model", openai.NotFoundError, 404, lambda: c.completions.create(model="other", prompt="x"))
    refused("n = 2", openai.BadRequestError, 400, lambda: c.completions.create(model=name, prompt="x", n=2))
    refused("a prompt beyond the context", openai.BadRequestError, 400, lambda: c.completions.create(model=name, prompt="x " * 20000))
    refused("a large body", openai.APIStatusError, 413, lambda: c.completions.create(model=name, prompt="x" * (5 << 20)))
    refused("a wrong token", openai.AuthenticationError, 401, lambda: client(str(c.base_url)[:-4], "wrong-token-of-16").models.list())


def calls(c):
    tools = [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
    ask = {"model": "calls", "messages": [{"role": "user", "content": "Rome?"}], "tools": tools}
    a = c.chat.completions.create(**ask).choices[0]
    call = a.message.tool_calls[0]
    check("tools", a.finish_reason == "tool_calls" and call.function.name == "weather" and json.loads(call.function.arguments) == {"city": "Rome"}, a)
    name = arguments = ""
    for p in c.chat.completions.create(**ask, stream=True):
        for t in p.choices[0].delta.tool_calls or []:
            name, arguments = name + (t.function.name or ""), arguments + (t.function.arguments or "")
    check("tools, streamed", name == "weather" and json.loads(arguments) == {"city": "Rome"}, (name, arguments))
    ask["messages"] += [a.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    check("the result of a tool", c.chat.completions.create(**ask).choices, "")


def rate(c, name, clients, tokens):
    counts = [0] * clients

    def one(i):
        r = c.completions.create(model=name, prompt=f"func f{i}(", max_tokens=tokens, seed=i, temperature=0)
        counts[i] = r.usage.completion_tokens

    threads = [threading.Thread(target=one, args=(i,)) for i in range(clients)]
    began = time.time()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(counts) / (time.time() - began)


if __name__ == "__main__":
    at = client(sys.argv[1], timeout=300, max_retries=0)
    name = at.models.list().data[0].id
    if sys.argv[2] != "-":
        whole(at, name)
        calls(client(sys.argv[2], max_retries=0))
    else:
        tokens = int(sys.argv[3])
        rate(at, name, 1, 4)
        one = max(rate(at, name, 1, tokens) for _ in range(2))
        eight = max(rate(at, name, 8, tokens) for _ in range(2))
        print(f"one client {one:.1f} tokens/s, 8 clients {eight:.1f} tokens/s: {eight / one:.2f} times")
        sys.exit(eight < 3 * one)
