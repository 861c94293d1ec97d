"""Renders expressions as transformers' templates do, for the tests of package chat: writes expressions.json.

    python expressions.py
    python expressions.py --random N --to DIR     writes N random expressions instead; make check-chat does so

Needs transformers, jinja2.
"""
import argparse, json, os, random

from transformers.utils.chat_template_utils import render_jinja_template

MESSAGES = [{"role": "user", "content": "Hi There, it's <b> \"q\" & é\n"}, {"role": "assistant", "content": " x, y\nz "}]
TOOLS = [{"type": "function", "function": {"name": "w", "description": "d <é>", "parameters": {"type": "object", "properties": {
    "b": {"type": "string", "n": 1.0, "k": None, "t": True, "e": [], "o": {}}, "a": {"type": ["int", "null"], "enum": [1, 2.50, 1e20, "x"]}}, "required": ["b"]}}}]

# What templates say of messages and tools.
VALUES = """tools[0] | tojson|tools[0] | tojson(indent=4)|tools[0]['function'] | tojson(indent=2)|tools | tojson|messages[0].content | tojson|messages | length|messages[-1]['content']|messages[::-1][0].content
messages[1:][0].role|messages[0].content[:2]|messages[0].content[-3:]|messages[0].content.split(' ')[1]|messages[0].content.split(',', 1)[1]|messages[0].content.strip()|messages[1].content.rstrip('z ')
messages[0].content | title|messages[0].content.title()|messages[0].content | capitalize|messages[0].content | replace('i','I')|messages[0].content.replace('i','I',1)|messages | map(attribute='role') | join(', ')
messages | selectattr('role','equalto','user') | list | length|messages | rejectattr('role','eq','user') | map(attribute='content') | first|messages[0].nope is defined|messages[0].nope is none
messages[0].get('nope','dflt')|messages[0].get('nope')|messages[0].nope or 'o'|messages is iterable|messages[0] is mapping|messages is sequence|messages[0]['content'] | e|messages['x']|messages['x'] is defined
messages[5]|messages[5].content|nope|nope.x|nope['x']|nope()|messages[0].nope.x|none.x|nope.strip()|messages[0].nope()|messages[0].content.nope()|messages[0].content | nope|messages is nope
messages[0]|messages|tools[0].function.parameters.properties.a|tools[0].function.parameters.required
messages[0].content | trim | length|messages[0].content | indent(2)|messages[0].content | wordcount|messages[0].content | upper|messages[0].content | lower|messages[0].keys() | list|messages[0].items() | list
(messages[0].content if messages[0].role == 'user' else 'n') | trim|messages[0].content.splitlines()|messages[0].content.count('e')|messages[0].content.find('T')""".split("\n")

PLAIN = [
    # arithmetic
    "7 // 2", "7 / 2", "7 % 3", "2 ** 3", "-7 // 2", "-7 % 3", "7 % -3", "7.5 // 2", "7.5 % 2", "-7.5 % 2", "5 // 0", "5 % 0", "5 / 0", "5.0 // 0", "1.0", "1e20", "0.1 + 0.2", "10 / 5", "1 + 1.0", "2 * 3", "2 * 1.5", "true + 1",
    "'a' + 'b'", "'a' + 1", "1 + 'a'", "'a' - 1", "'a' * 3", "3 * 'a'", "'a' * -1", "'a' * 'b'", "[0] * 2", "2 * [1, 2]", "[1] + [2]", "[1] + 'a'", "[1] - [1]", "'a' / 2", "none + 1", "nope + 1", "1 + nope", "nope ~ 1", "'x' ~ 1 ~ none ~ true",
    "-'a'", "-3", "-(3.5)", "not 'a'", "(1, 2) + (3,)", "{} + {}", "{'a': 1} * 2", "1 ~ [1, 'a']", "'a' ~ {'b': none}",
    # comparison
    "1 < 2 < 3", "3 > 2 > 1", "1 < 3 < 2", "1 == 1.0", "'1' == 1", "1 == true", "0 == false", "none == none", "[1, 2] == [1, 2]", "[1] == [1.0]", "{'a': 1} == {'a': 1}", "'a' < 'b'", "'a' < 1", "none < 1", "[1] < [2]", "'B' < 'a'", "1 != 2", "'a' != 'a'",
    "'a' in 'abc'", "not 'a' in 'abc'", "'a' not in 'abc'", "1 in [1, 2]", "1 in 'abc'", "'a' in {'a': 1}", "'a' in nope", "'a' in none", "1 in 5", "none in [none]", "'' in 'a'", "1.0 in [1]", "not true and false or true", "'' or 'x'", "'a' and 'b'", "0 or []", "none or nope",
    # printing
    "true", "none", "[1, 'a', none, true, 1.5]", "{'a': 1, 'b': [1, 2]}", "(1, 'a')", "(1,)", "()", "[]", "{}", "['it\\'s', \"q\\\"\", 'a\\nb\\t\\\\', 'é', '\\x00\\x7f\\u200b']", "[1e20, 1e16, 1e-5, 0.0001, 123456789.0, 1.0e100]", "1e16", "123456789012345680.0", "1e-5", "{1: 'a', none: 2}", "[nope]", "[[1], [2, [3]]]", "{'a': {'b': (1, 2)}}", "1.5e300 * 1e10",
    "'\\n\\t\\\\ \\x41 \\u00e9'", "'abc'[1]", "'abc'[-1]", "'abc'[::-1]", "'abc'[5]", "[1, 2, 3, 4][1:3]", "[1, 2, 3][::-1]", "[1, 2, 3][-1]", "[1, 2, 3][7]", "'abc'[1:]", "'abc'[:-1]", "'héllo'[1:3]", "{'a': {'b': 2}}.a.b", "{'items': 1}.items", "{'items': 1}['items']", "[1, 2].0", "'abc'[0:0]", "'abc'[10:]", "[1, 2, 3][-10:2]",
    # filters
    "-3 | abs", "'a' | abs", "[1, 2, 3, 4, 5] | batch(2) | list", "[1, 2, 3] | batch(2, 'x') | list", "'hELLO wORLD' | capitalize", "'a' | center(5) ~ '|'", "'ab' | center(5) ~ '|'", "nope | default('y')", "'' | default('y', true)", "none | default('y')", "none | default('y', true)", "nope | d('z')",
    "{'b': 1, 'a': 2} | dictsort", "{'b': 1, 'a': 2} | dictsort(by='value')", "{'b': 1, 'A': 2, 'c': 0} | dictsort", "{'b': 1, 'A': 2} | dictsort(case_sensitive=true)", "{'b': 1, 'a': 2} | dictsort(reverse=true)", "{'b': 1, 'a': 2} | dictsort(false, 'value', true)", "{2: 'x', 1: 'y'} | dictsort", "{'a': 1, 2: 3} | dictsort", "{'a': 'x', 'b': 1} | dictsort(by='value')", "[1] | dictsort", "{'a': 1} | dictsort(by='x')",
    "'<a href=\"x\">\\'&' | e", "'<' | escape", "'<' | forceescape", "1234567 | filesizeformat", "[1, 2] | first", "[] | first", "'abc' | first", "'3.7' | float", "'x' | float", "'x' | float(1.5)", "3 | float", "true | float", "'%s is %d' | format('a', 3)", "'%.2f' | format(1.005)", "'%5s|%-5s|%05d|%+d|%x|%e|%g|%%' | format('a', 'b', 42, 3, 255, 1234.5, 0.0001)", "'%(a)s' | format(a=1)", "'%d' | format('a')", "'%s' | format()", "'%r' | format('a')",
    "messages | groupby('role') | list | length", "'a\\nb\\n\\nc' | indent", "'a\\nb' | indent(2, true)", "'a\\n\\nb' | indent(2, blank=true)", "'a\\nb' | indent('--')", "'3' | int + 1", "2.7 | int", "-2.7 | int", "'x' | int", "'x' | int(7)", "'0x1f' | int(0, 16)", "'12.5' | int", "none | int", "12345.678 | int", "true | int", "' 5 ' | int",
    "{'a': 1} | items | list", "nope | items | list", "[1] | items | list", "none | items | list", "[1, 'a', none] | join", "[1, 2] | join('-')", "messages | join(',', attribute='role')", "'abc' | join('-')", "[1, 2, 3] | last", "[] | last", "'abc' | last", "'é' | length", "{'a': 1} | length", "5 | length", "none | length", "nope | length", "nope | count", "'abc' | list", "{'a': 1, 'b': 2} | list", "5 | list", "(1, 2) | list", "'ÀÉ' | lower",
    "['a', 'b'] | map('upper') | list", "[{'a': 1}, {'b': 2}] | map(attribute='a') | list", "[{'a': 1}, {'b': 2}] | map(attribute='a', default='z') | list", "[{'a': {'b': 3}}] | map(attribute='a.b') | list", "['1', '2'] | map('int') | sum", "['a'] | map('nope') | list", "['a', 'b'] | map('replace', 'a', 'x') | list", "[3, 1, 2] | max", "['b', 'A'] | max", "[] | max", "['b', 'A'] | min", "[3, 1] | min", "[{'a': 3}, {'a': 1}] | max(attribute='a')", "[1, 2, 3] | pprint",
    "[1, 0, 2] | reject | list", "[1, 2, 3, 4] | reject('odd') | list", "[1, 0, none, 'a'] | select | list", "[1, 2, 3] | select('greaterthan', 1) | list", "[1, 2, 3] | select('>', 1) | list", "messages | selectattr('nope') | list", "messages | selectattr('role', 'in', ['user']) | list | length", "messages | selectattr('content', 'defined') | list | length", "messages | rejectattr('nope', 'defined') | list | length", "messages | selectattr('role', 'ne', 'user') | map(attribute='role') | list",
    "'aXbX' | replace('X', '-')", "'aXbX' | replace('X', '-', 1)", "'abc' | reverse", "[1, 2, 3] | reverse | list", "5 | reverse", "2.5 | round", "3.5 | round", "2.567 | round(2)", "2.5 | round(method='floor')", "2.1 | round(0, 'ceil')", "1234 | round(-2)", "'<b>' | safe", "[1, 2, 3, 4, 5] | slice(2) | list", "['b', 'a', 'C'] | sort", "['b', 'a', 'C'] | sort(case_sensitive=true)", "[3, 1, 2] | sort(reverse=true)", "[{'a': 2}, {'a': 1}] | sort(attribute='a')", "[1, 'a'] | sort", "{'b': 1, 'a': 2} | sort", "3 | string", "none | string", "[1, 'a'] | string", "1.0 | string", "nope | string", "'<p>a  b</p>' | striptags", "[1, 2] | sum", "[1.5, 2] | sum", "[{'a': 1}] | sum(attribute='a')", "[1] | sum(start=5)", "['a'] | sum", "[] | sum",
    "\"it's a <b>bold</b> o-k (x) _y_\" | title", "'FOO bar' | title", "'a1b 2c' | title", "none | title", "'héLLo wörld' | title", "'  a ' | trim", "'xxaxx' | trim('x')", "none | trim", "5 | trim", "'hello world foo bar' | truncate(9)", "'hello world foo bar' | truncate(9, true)", "'hello' | truncate(20)", "[1, 1, 2] | unique | list", "['a', 'A'] | unique | list", "['a', 'A'] | unique(case_sensitive=true) | list", "'straße' | upper", "'a b&c/d' | urlencode", "{'a': 1, 'b': 'x y'} | urlencode", "'a b c' | wordcount", "'' | wordcount", "'a b c d e f' | wordwrap(3)", "{'class': 'x', 'n': none} | xmlattr",
    "'é\\u2028<>&' | tojson", "\"it's\" | tojson", "1.0 | tojson", "none | tojson", "nope | tojson", "(1, 2) | tojson", "{'b': 1, 'a': [true, none]} | tojson", "{'b': 1, 'a': 2} | tojson(sort_keys=true)", "[1, 2] | tojson(separators=(',', ':'))", "{1: 2} | tojson", "[] | tojson(indent=2)", "'é' | tojson(ensure_ascii=true)", "1e20 | tojson", "true | tojson", "[1, [2]] | tojson(indent=1)", "{} | tojson",
    # tests
    "1 is number", "true is number", "true is boolean", "1 is integer", "true is integer", "1.0 is float", "1 is float", "'a' is string", "none is none", "nope is none", "nope is undefined", "none is defined", "[] is sequence", "'a' is sequence", "{} is sequence", "5 is sequence", "{} is mapping", "[] is iterable", "5 is iterable", "nope is iterable", "3 is odd", "3 is even", "6 is divisibleby(3)", "6 is divisibleby 4", "6 is divisibleby(0)", "'a' is lower", "'A' is upper", "1 is eq 1", "1 is sameas 1", "none is sameas none", "true is sameas true", "1 is in [1]", "'a' is in 'abc'", "2 is gt 1", "2 is lessthan 1", "range is callable", "'a' is callable", "'upper' is filter", "'nope' is filter", "'odd' is test", "'<' | e is escaped", "true is true", "1 is true", "false is false", "0 is false", "1 is ne 2", "1 is not odd", "not 1 is odd", "2 is ge 2", "2 is le 1", "2 is == 2", "none is eq none",
    # methods of texts
    "'aBc'.capitalize()", "'ß'.casefold()", "'a'.center(5, '-')", "'abab'.count('ab')", "'abc'.endswith('c')", "'abc'.endswith(('b', 'c'))", "'abc'.startswith('b', 1)", "'a\\tb'.expandtabs()", "'abc'.find('c')", "'abc'.find('z')", "'éabc'.find('c')", "'abc'.index('z')", "'abcabc'.rfind('b')", "'a{}b{}'.format(1, 'x')", "'{:>5}|{}'.format('a', 1)", "'{0}{1}{0}'.format('x', 'y')", "'{a}'.format(a=1)", "'{:.2f}'.format(1.005)", "'{:05d}'.format(42)", "'{:,}'.format(1234567)", "'{!r}'.format('a')", "'{{}}'.format()", "'{'.format()", "'{}'.format()", "'{:^7}|'.format('ab')", "'{:x}'.format(255)",
    "'a1'.isalnum()", "'a'.isalpha()", "'é'.isascii()", "'5'.isdecimal()", "'5'.isdigit()", "'²'.isdigit()", "'½'.isnumeric()", "'a1_'.isidentifier()", "'ab'.islower()", "'a b'.istitle()", "'A B'.istitle()", "' '.isspace()", "''.isspace()", "'AB'.isupper()", "'a'.isprintable()", "', '.join(['a', 'b'])", "'-'.join('abc')", "','.join([1])", "'a'.ljust(3) ~ '|'", "'a'.rjust(3, '.')", "'AÀ'.lower()", "'İ'.lower() | length", "'İ'.lower()", "'ΑΣ'.lower()", "'  a '.lstrip() ~ '|'", "'xxa'.lstrip('x')", "'a-b-c'.partition('-')", "'abc'.partition('-')", "'a-b-c'.rpartition('-')", "'abc'.rpartition('-')", "'abc'.removeprefix('a')", "'abc'.removesuffix('c')", "'aaa'.replace('a', 'b', 2)", "'abc'.replace('', '-')", "'a b  c'.split()", "' a b '.split(' ')", "'a,b,c'.split(',', 1)", "'a b c'.split(none, 1)", "'a b c d'.rsplit(none, 1)", "'a b c'.split(maxsplit=1)", "'a,b,c'.rsplit(',', 1)", "'abc'.split('')", "'a\\nb\\r\\nc'.splitlines()", "'a\\nb'.splitlines(true)", "'a\\x0bb\\u2028c'.splitlines()", "'  a  '.strip() ~ '|'", "'aBc'.swapcase()", "\"it's <b> o-k é1a\".title()", "'ab'.upper()", "'ﬁ'.upper()", "'5'.zfill(3)", "'-5'.zfill(4)", "'abc'.encode()", "'a'.nope()", "'abc'.translate({97: 'x'})", "'abc'.startswith()", "'abc'.startswith(1)", "'abc'.strip(1)",
    # methods of lists and dicts
    "[1, 2].append(3)", "[1, 2].count(1)", "[1, 2].index(2)", "[1, 2].index(3)", "[1, 2].copy()", "[1, 2].pop()", "[2, 1].sort()", "[1].extend([2])", "{'a': 1}.keys() | list", "{'a': 1}.values() | list", "{'a': 1}.items() | list", "{'a': 1}.get('b')", "{'a': 1}.get('b', 2)", "{'a': 1}.copy()", "{'a': 1}.pop('a')", "{'a': 1}.update({'b': 2})", "{'a': 1}.keys()", "{'a': 1}.values()", "{'a': 1}.items()", "{'a': 1}.setdefault('b', 1)", "{}.fromkeys(['a'])", "{'a': 1}.nope()", "{'a': 1}.nope", "(1, 2).index(2)", "5.0.is_integer()",
    # functions
    "range(3) | list", "range(1, 6, 2) | list", "range(5, 0, -2) | list", "range(3)", "range(0) | list", "range('a')", "range(3)[1]", "range(3) | length", "dict(a=1, b=2)", "dict()", "dict({'a': 1}, b=2)", "namespace(a=1).a", "cycler('a', 'b').next()", "joiner(',')() ~ 'x'", "raise_exception('no way')", "strftime_now('%Y') | length", "(1, 2)[0]", "'%s' % none", "'a%sb%d' % ('c', 3)", "'a%s' % 'x'", "'%s %s' % ('a',)", "'%d%%' % 5", "'%s' % [1, 'a']", "'%s' % {'a': 1}", "'%(a)s' % {'a': 1}", "'%.1f' % 2", "'%i' % 2.7", "'%c' % 'a'", "'%5.2f|' % 3.14159", "'%q' % 1", "'%s' % nope", "'a' % 1", "'%s' % (1, 2)",
    # conditions
    "'a' if true", "'a' if false", "'a' if false else 'b'", "('a' if nope else 'b') ~ 'c'", "1 if 0 else 2 if 0 else 3",
]

# what binds to what
BINDING = [
    "true and 1 is odd | string", "true and 3 is divisibleby 3 | string", "1 is odd | string ~ 'x'", "not 1 is odd | string", "1 in [1,2] + [3]", "'a' in 'b' ~ 'a'", "'a' in 'b' + 'a'", "1 in [2] or 1 in [1]",
    "not 1 in [1] or true", "'a' in 'x' | default('a') and 'b' in 'B' | lower", "(true and 'A' in 'a') | string | upper", "1 in [1] is true", "'a' in messages[0].content.lower()", "'a' in messages[0]['content'] | lower | trim", "messages[0].role in ['user', 'tool'] and messages[0].content is string", "('a' in 'ABC') | string",
    "(1 in [1]) | string | lower", "(1 + 2) | string ~ 'x'", "(messages | first).role | upper", "not 'a' in 'ABC' | lower", "(not 'a' in 'ABC') | string", "('a' if true else 'b') | upper", "((1)) | string", "'x' if (1 in [1] | list) else 'y'",
    "(1, 2) | list", "(1,) | first", "'A' in 'a' | upper and true", "true and 'A' in 'a' | upper", "1 in [1] | list | reverse | list", "'a' in 'B' | lower or 'b' in 'B' | lower", "1 in [1] | list == true", "('a' ~ 'b') | upper",
    "not (1 in [1] | list)", "'q' in messages[0].content | lower if true else 3", "1 in [1] | list", "'a' in 'ABC' | lower", "'a' ~ 1 | string", "1 + 2 | string", "not '' | length", "'a' == 'A' | lower",
    "messages | length > 1", "messages[0].content | lower == 'x'", "1 in {'a':1}.values() | list", "'a' in {'a': 1}.items() | list", "'b' in ({'b':1}).keys() | list", "-1 | abs", "2 * 3 | string", "'a' if 1 | string == '1' else 'b'",
    "[1,2] | map('string') | join('-') ~ 'x'", "'a' | upper ~ 'b' | upper", "1 < 2 | int", "'x' in messages[0].keys() | list", "1 if nope else 2 | string", "not true | string", "'a' and 'b' | upper", "'a' or 'b' | upper",
    "'A' is lower | string", "('a' is lower) | string", "1 is defined and 2 | string == '2'", "messages[0].content.split('i') | length", "[1] + [2] | list", "'a' not in 'A' | lower", "2 ** 3 | string", "-2 ** 2",
    "2 ** 3 ** 2", "2 * 3 % 4", "1 - 2 - 3", "10 // 3 * 3", "'a' ~ 'b' == 'ab'", "1 ~ 2 + 3", "not 1 == 2", "not 1 in [2]",
    "1 == 1 in [true]", "1 + 1 == 2 and 3 > 2 or false", "-'3' | int", "(-3) | abs", "- 3 | abs", "{'a': 1}['a'] + 1", "[1,2][0] ~ 'x'", "'a' 'b'",
    "'a' if true else 'b' | upper", "1 if 1 in [1] else 2", "[x for x in [1]]", "messages[0]['content'][:2] | upper", "messages[-1].role | title", "(messages | last).role", "(messages | first)['role']", "messages | map(attribute='role') | list | last",
    "'%s' % 'a' | upper", "loop is defined", "true and not false", "1 is not none and 1 is number",
]

BLOCKS = [
    "{% set ns = namespace(a=1) %}{% for x in messages %}{% set ns.a = ns.a + loop.index %}{% endfor %}{{ ns.a }}",
    "{% for x in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{% if not loop.first %}{{ loop.previtem.role }}{% endif %}{% if loop.nextitem is defined %}n{% endif %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for k, v in tools[0].function.parameters.properties.items() %}{{ k }}={{ v.type }};{% endfor %}",
    "{% for k, v in tools[0].function.parameters.properties | dictsort %}{{ k }}={{ v.type }};{% endfor %}", "{% for k, v in tools[0].function.parameters.properties | items %}{{ k }};{% endfor %}", "{% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %}", "{% for p in {'b': 1} | dictsort %}{{ p[0] }}{{ p }}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }};{% endfor %}", "{% for a, b in [1, 2] %}{{ a }}{% endfor %}", "{% for a in 5 %}{{ a }}{% endfor %}", "{% for a in none %}{{ a }}{% endfor %}", "{% for a in nope %}{{ a }}{% else %}e{% endfor %}", "{% for a in 'abc' %}{{ a }};{% endfor %}",
    "{% if '' %}a{% elif 0 %}b{% elif [] %}c{% elif none %}d{% elif {} %}e{% elif 0.0 %}f{% elif nope %}g{% else %}h{% endif %}", "{% macro f(x, y='d') %}[{{ x }}{{ y }}]{% endmacro %}{{ f(1) }}{{ f('a', y=2) }}", "{%- if true -%}  \n a \n {%- endif -%} b", "\n  {% if true %}\n  line\n  {% endif %}\n end", "{{- 'a' -}}   {{ 'b' }}\n{#- note -#}\n c",
    "{% set x %}cap {{ 1 }}{% endset %}{{ x }}!", "{% for a in [1,2,3] if a != 2 %}{{ a }}{% else %}none{% endfor %}", "{% for a in [1,2,3] %}{% if a == 2 %}{% continue %}{% endif %}{{ a }}{% if a == 3 %}{% break %}{% endif %}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% set x = 1 if nope else 2 %}{{ x }}", "{% set x = [1] + [2] %}{{ x }}", "{% with a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% raw %}{{ a }}{% endraw %}", "{% do [].append(1) %}x", "{% set l = [] %}{% set l = l + ['a'] %}{{ l | join }}",
    "{% for m in messages %}{% set last = m.role %}{% endfor %}{{ last }}", "{% for x in [1, 2] recursive %}{{ x }}{% endfor %}", "{% set d = {'a': 1} %}{% set d = dict(d, b=2) %}{{ d }}", "{% if messages[0]['role'] == 'user' and messages | length > 1 %}y{% endif %}", "line\n{{ 5 // 0 }}", "a\n\n{{ 'a' - 1 }}",
    # several in one text
    "{{ messages[0].content.strip() }}|",
    "{{ messages[1].content.lstrip() }}|{{ messages[1].content.rstrip('z ') }}|",
    "{% for x in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{% if not loop.first %}{{ loop.previtem.role }}{% endif %}{% if loop.nextitem is defined %}n{% endif %}{% endfor %}",
    "{% for k, v in tools[0].function.parameters.properties | dictsort %}{{ k }};{% endfor %}",
    "{{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ 2 ** 3 }} {{ -7 // 2 }} {{ -7 % 3 }}",
    "{{ 1.0 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 10 / 5 }} {{ 3 | string }} {{ '3' | int + 1 }} {{ 2.7 | int }} {{ 2.5 | round }} {{ '%.2f' | format(1.005) }}",
    "{{ true }} {{ none }} {{ [1,'a',none,true,1.5] }} {{ {'a': 1, 'b': [1,2]} }}",
    "{{ 'a' in messages[0] }} {{ 'role' in messages[0] }} {{ 'Hi' in messages[0].content }}",
    "{{ messages[0].nope is defined }} {{ messages[0].nope is none }} {{ messages[0].get('nope','dflt') }} {{ messages[0].nope or 'o' }}",
    "{{ messages is iterable }} {{ messages[0] is mapping }} {{ messages[0].content is string }} {{ 1 is number }} {{ messages is sequence }} {{ true is boolean }} {{ 1 is integer }} {{ 1.0 is float }}",
    "{{ 'ab'.startswith('a') }} {{ 'ab'.endswith(('b','c')) }} {{ 'abc'.find('c') }} {{ 'a-b'.partition('-')[2] }} {{ ' '.join(['a','b']) }} {{ 'Ab'.swapcase() }} {{ '5'.isdigit() }} {{ '5'.zfill(3) }}",
    "{% if '' %}a{% elif 0 %}b{% elif [] %}c{% elif none %}d{% else %}e{% endif %}",
    "{{ messages[0].content | trim | length }} {{ 'é' | length }}",
    "{{ ['b','a','C'] | sort | join }} {{ ['b','a','C'] | sort(case_sensitive=true) | join }} {{ [3,1,2] | max }} {{ [1,2] | sum }} {{ [1,1,2] | unique | list }}",
    "{{ range(3) | list }} {{ range(1,6,2) | list }}",
    "{{ not true and false or true }} {{ 1 < 2 < 3 }} {{ 'a' == \"a\" }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ not 'a' in 'abc' }}",
    "{{ 'abc' | list }} {{ 'abc' | reverse }} {{ [1,2,3] | reverse | list }} {{ [1,2,3] | last }}",
    "{{ 'a b c' | wordcount }} {{ 'x' | default('y') }} {{ nope | default('y') }} {{ '' | default('y', true) }}",
    "{{ {'a':1} | items | list }} {{ {'a':1}.keys() | list }} {{ {'a':{'b':2}}.a.b }}",
    "{{ 'abc'[1] }} {{ 'abc'[-1] }} {{ 'abc'[::-1] }} {{ [1,2,3,4][1:3] }}",
    "{{ 'A'.lower() }}{{ 'straße'.upper() }}{{ 'İ'.lower() | length }}",
    "{{ '%s' % none }} {{ 'a' * 3 }} {{ [1] + [2] }} {{ [0] * 2 }}",
    "{{ 12345.678 | int }} {{ '{:>5}|{}'.format('a', 1) }} {{ '{0}{1}'.format('x','y') }}",
]


def drawn(r, depth=0):
    """A random expression."""
    if depth > 3 or r.random() < 0.25:
        return r.choice(["1", "0", "-2", "7", "2.5", "0.0", "true", "false", "none", "nope", "'a'", "''", "'Ab c'", "' x '", "'a,b'", "'é'", "'3'", "[]", "[1, 2, 3]", "['b', 'A']", "(1, 'x')", "{}",
                         "{'b': 1, 'a': 2}", "{'k': [1, none]}", "messages", "messages[0]", "messages[0].content", "messages[1]['role']", "tools", "tools[0].function", "tools[0].function.parameters.properties"])
    sub = lambda: drawn(r, depth + 1)
    kind = r.randrange(9)
    if kind == 0:
        return f"({sub()} {r.choice(['+', '-', '*', '/', '//', '%', '~'])} {sub()})"
    if kind == 1:
        return f"({sub()} {r.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in', 'and', 'or'])} {sub()})"
    if kind == 2:
        return f"({sub()} if {sub()} else {sub()})"
    if kind == 3:
        return f"({r.choice(['not ', '-', ''])}{sub()})"
    if kind == 4:
        return f"({sub()})[{r.choice([sub(), '0', '-1', '1', '1:', ':-1', '::-1', '0:2', '::2'])}]"
    if kind == 5:
        return f"({sub()} is {r.choice(['', 'not '])}{r.choice(['defined', 'none', 'string', 'number', 'mapping', 'iterable', 'sequence', 'boolean', 'odd', 'even', 'integer', 'float', 'true', 'lower', 'undefined', 'eq(1)', 'in([1])'])})"
    if kind == 6:
        return f"({sub()}).{r.choice(['strip()', 'upper()', 'lower()', 'split()', 'title()', 'content', 'a', 'b', 'get(' + chr(39) + 'a' + chr(39) + ')', 'items() | list', 'keys() | list', 'replace(' + sub() + ', ' + sub() + ')', 'startswith(' + sub() + ')', 'count(' + sub() + ')', 'find(' + sub() + ')', 'join(' + sub() + ')', 'split(' + sub() + ')'])}"
    return f"({sub()} | {r.choice(['length', 'upper', 'lower', 'title', 'capitalize', 'trim', 'list', 'string', 'int', 'float', 'abs', 'first', 'last', 'join(' + chr(39) + '-' + chr(39) + ')', 'default(1)', 'default(' + sub() + ', true)', 'dictsort', 'items | list', 'reverse | list', 'sort', 'sort(reverse=true)', 'unique | list', 'sum', 'max', 'min', 'round', 'round(1)', 'tojson', 'tojson(indent=2)', 'wordcount', 'replace(' + chr(39) + 'a' + chr(39) + ', ' + sub() + ')', 'map(' + chr(39) + 'upper' + chr(39) + ') | list', 'map(attribute=' + chr(39) + 'role' + chr(39) + ') | list', 'select | list', 'reject(' + chr(39) + 'none' + chr(39) + ') | list', 'selectattr(' + chr(39) + 'role' + chr(39) + ') | list', 'indent(2)', 'batch(2) | list', 'center(7)', 'format(' + sub() + ')'])})"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--random", type=int, default=0, metavar="N")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--to", default=os.path.dirname(os.path.abspath(__file__)), metavar="DIR")
    o = p.parse_args()
    rows = []
    r = random.Random(o.seed)
    sources = ["{{ " + drawn(r) + " }}" for _ in range(o.random)] or ["{{ " + e.strip() + " }}" for line in VALUES for e in split(line)] + ["{{ " + e + " }}" for e in PLAIN + BINDING] + BLOCKS
    for source in sources:
        row = {"source": source}
        try:
            row["text"] = render_jinja_template([MESSAGES], tools=TOOLS, chat_template=source, add_generation_prompt=False)[0][0]
        except Exception as e:
            row["error"] = type(e).__name__ + ": " + str(e)
        rows.append(row)
    path = os.path.join(o.to, "expressions.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"messages": MESSAGES, "tools": TOOLS, "rows": rows}, f, ensure_ascii=True, indent=0)
        f.write("\n")


def split(line):
    """The parts between | without a space at either side: a filter's has both."""
    part, parts = "", []
    for i, c in enumerate(line):
        if c == "|" and (line[i - 1] != " " or i + 1 < len(line) and line[i + 1] != " "):
            parts.append(part)
            part = ""
        else:
            part += c
    return parts + [part]


if __name__ == "__main__":
    main()
