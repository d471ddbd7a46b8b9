#!/usr/bin/env python3
"""Write corpus.jsonl: lines of text that tokenizers get wrong, one JSON string a line.

Deterministic: the same Python gives the same file (random.Random(seed) only shuffles and draws from the
words below). Usage: make_corpus.py > corpus.jsonl
"""
import json
import random
import sys

R = random.Random(20260)

WORDS = {
    "latin": "the river carries small boats toward morning light and nobody hurries because bread is warm "
             "Children's laughter we'll they're I'd can't WON'T it's 'tis rock'n'roll naïve façade coöperate "
             "über Straße Größe żółw jeżyna český příliš žluťoučký ığdır İstanbul şeker ñandú corazón São irmão "
             "smørrebrød ångström þorn ðögun œuvre ĳsvrij ǅungla ﬁne ﬂour Ⅷ tiếng Việt nghiêng đường",
    "greek": "το φως πέφτει στη θάλασσα και οι άνθρωποι γελούν Ὀδυσσεύς ᾠδή ἄνθρωπος Ωμέγα ΣΊΣΥΦΟΣ ς",
    "cyrillic": "утром над рекой поднимается туман и лодки уходят медленно Ёлка щи съезд їжак ґанок ўсё "
                "љубав њива ћирилица ѣхать қала өзен ңан",
    "armenian": "առավոտյան գետի վրա մառախուղ է իջնում Երևան և հաց",
    "georgian": "დილით მდინარეზე ნისლი დგება და პური თბილია ᲗᲑᲘᲚᲘᲡᲘ",
    "hebrew": "בבוקר עולה ערפל מעל הנהר שָׁלוֹם עוֹלָם לֶחֶם״ ׳",
    "arabic": "في الصباح يصعد الضباب فوق النهر العَرَبِيَّة مُحَمَّد لا إله ـــ پنیر گل چای ٹھنڈا ۱۲۳ ٤٥٦ ﷽ ﻻ",
    "syriac": "ܫܠܡܐ ܥܠܡܐ ܢܗܪܐ ܠܚܡܐ",
    "thaana": "ދިވެހި ބަސް ކޮރު",
    "devanagari": "सुबह नदी के ऊपर कोहरा उठता है हिन्दी क्षत्रिय ज्ञान ड़ ढ़ १२३ ॐ ।",
    "bengali": "সকালে নদীর উপর কুয়াশা ওঠে বাংলা ক্ষ ৎ ১২৩ য়",
    "gurmukhi": "ਸਵੇਰੇ ਨਦੀ ਉੱਤੇ ਧੁੰਦ ਪੰਜਾਬੀ ੧੨੩",
    "gujarati": "સવારે નદી ઉપર ધુમ્મસ ગુજરાતી ૧૨૩",
    "oriya": "ସକାଳେ ନଦୀ ଉପରେ କୁହୁଡ଼ି ଓଡ଼ିଆ",
    "tamil": "காலையில் ஆற்றின் மேல் மூடுபனி தமிழ் ஶ்ரீ ௧௨",
    "telugu": "ఉదయం నది మీద పొగమంచు తెలుగు క్ష్మ ౧౨",
    "kannada": "ಬೆಳಿಗ್ಗೆ ನದಿಯ ಮೇಲೆ ಮಂಜು ಕನ್ನಡ ೧೨",
    "malayalam": "രാവിലെ പുഴയുടെ മേൽ മൂടൽമഞ്ഞ് മലയാളം ൧൨ ന്റെ",
    "sinhala": "උදෑසන ගඟ උඩ මීදුම සිංහල ක්‍ෂ",
    "thai": "ตอนเช้ามีหมอกเหนือแม่น้ำ ที่ กำลัง น้ำ ๑๒๓ ฯลฯ",
    "lao": "ຕອນເຊົ້າມີໝອກເໜືອແມ່ນ້ຳ ລາວ ໑໒",
    "khmer": "ពេលព្រឹកមានអ័ព្ទលើទន្លេ ខ្មែរ ១២៣ ។",
    "myanmar": "မနက်မှာ မြစ်ပေါ် မြူဆိုင်း မြန်မာ ၁၂ ။",
    "tibetan": "ཞོགས་པར་ཆུ་བོའི་སྟེང་ན་སྨུག་པ། བོད་ཡིག ༡༢",
    "mongolian": "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ᠮᠣᠷᠢ",
    "ethiopic": "ጠዋት ከወንዙ በላይ ጉም ይነሳል አማርኛ ፩፪ ።",
    "cherokee": "ᎣᏏᏲ ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ꭳꮟꮿ",
    "canadian": "ᐃᓄᒃᑎᑐᑦ ᑯᒃ ᐅᓪᓛᒃᑯᑦ",
    "hangul": "아침에 강 위로 안개가 오른다 한국어 밥 ㅋㅋㅋ 각 뷁",
    "kana": "あさ かわ の うえ に きり が のぼる パン カタカナ ｶﾀｶﾅ ー ゞ がぎ",
    "han": "早晨 河面上升起薄雾 面包是热的 人力资源 俱乐部 朝の川に霧 龍龜鬱 𠮷野家 𪚥 々 〇 二〇二六年",
    "bopomofo": "ㄅㄆㄇ ㄓㄨˋ ㄧㄣ",
    "gothic": "𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂",
    "math": "∀x∈ℝ ∃y ≤ ∑ ∫ √2 ≈ 1.414 𝒳𝔸𝟙 ½ ² ₃ № ℵ₀ →⇒ ⟨ψ|φ⟩ ℏω µ",
    "runes": "ᚠᚢᚦᚨᚱᚲ ᛗᚨᚾ",
    "vai": "ꕙꔤ ꕢꕌ",
    "tifinagh": "ⴰⵣⵓⵍ ⵜⴰⵎⴰⵣⵉⵖⵜ",
}
WORDS = {k: v.split() for k, v in WORDS.items()}

EMOJI = ("🙂 👍🏽 👩‍👩‍👧 👨🏿‍🚀 🏳️‍🌈 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🇫🇷🇯🇵 1️⃣ #️⃣ ❤️‍🔥 ☕ ✈️ ⚠︎ 🫨 🪿 🧑‍🤝‍🧑 👁️‍🗨️ ❤ 🕵🏾‍♀️ 🤷‍♂️ 🐈‍⬛ 😶‍🌫️ ™ © ➡️ 〰️").split()

BLANKS = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \n \n", "\t \t", "\u00a0",
          "\u2003", "\u3000", "\u200b", "\u2028", "\u2029", "\u0085", "\u202f", "\x0b", "\x0c", "\ufeff", "\u205f", "\u1680", "\u180e"]

MARKERS = ("<bos> <eos> <pad> <unk> <mask> <unused0> <unused99> <start_of_turn> <end_of_turn> <start_of_image> <end_of_image> "
           "[multimodal] <table> </table> <h1> </h1> <h6> <b> </b> </s> <s> <sub> <sup> <code> </code> <0x41> <0x0A> <0xFF> "
           "<|im_start|> <|im_end|> <|endoftext|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> "
           "<|file_sep|> <|vision_start|> <|image_pad|> <|object_ref_start|> <tool_call> </tool_call> <think> </think> "
           "<tool_response> </tool_response> [PAD151700] <|channel> <channel|> <|turn> <turn|> <|\"|> <|tool_call> "
           "<|think|> <|image|>").split()
BROKEN_MARKERS = ("<start_of_turn <|im_start| <|im_end|>> <<|im_end|> < |im_start|> <|IM_START|> <end_of_turn/> <|im_<|im_end|>end|> "
                  "<tool_call <Tool_Call> <unused> <unused6242> <table <h7> <|endoftext|><|endoftext| <bos <|vision_start").split()

CODE = [
    "def area(w: float, h: float) -> float:\n    \"\"\"Surface.\"\"\"\n    return w * h\n",
    "for (int i = 0; i < n; i++) {\n\tsum += a[i] << 2;\n}\n",
    "if (x) {\n\t\treturn;\n\t}\n",
    "SELECT name, COUNT(*) FROM boats WHERE length >= 12.5 GROUP BY name;",
    "{\"key\": [1, 2.5, -3e-7, null, true], \"nested\": {\"a\\n\": \"\\u00e9\"}}",
    "<div class=\"row\"><a href='#top'>&nbsp;up</a></div>",
    "fn main() { let v: Vec<u8> = b\"abc\".to_vec(); println!(\"{:?}\", v); }",
    "template<typename T> struct S { std::vector<std::pair<T, int>> items; };",
    "$ grep -rn --include='*.c' \"gem_\" src | sort -u >> out.txt 2>&1",
    "    \n        deeper\n            deepest\n",
    "x=1;\r\n\r\n\r\n  y=2",
    "a\r\nb\r\n\r\nc",
    "#include <stdio.h>\n\n\nint main(void) { return 0; }\n",
    "class Boat:\n\tdef __init__(self):\n\t\tself.name = 'It''s'\n",
    "https://example.org/path?q=%20a+b&x=1#frag user@example.org C:\\new\\t",
    "0x1F 0b1010 1_000_000 3.14159 1e-10 .5 12:34:56 2026-01-15 1,234,567.89 ١٢٣ 一二三",
    "camelCaseAndSnake_case-kebab__dunder__ HTTPServer2XX v1.2.3-rc.4+build",
    "!!\n\n@@ --- *** +++ ~~~ === <<< >>> ??? ... … —– “”‘’«»",
    "''' \"\"\" ``` `x` 's 'S 'Ll 'VE 'RE'd don''t O'Neil 'em y'all'd've ’s ’LL",
    "\\( \\frac{a}{b} \\) $$\\sum_{i=0}^{n} x_i$$",
    "~/.config/tool.toml\n[section]\nkey = \"value\" # note\n",
    "def f(x):\n  return [i**2 for i in range(x) if not i % 3]\n\n\n\n\nf(3)",
]

MARKS = ["\u0301", "\u0323", "\u0308", "\u20dd", "\u0335", "\ufe0f", "\u200d", "\u0489", "\u093c", "\u0e48", "\u064b", "\u05b8", "\u3099", "\u1ab0"]

# Valid UTF-8 that looks broken: replacement characters, noncharacters, private use, ends of the planes.
ODD = ["\ufffd", "\ufffe", "\uffff", "\ue000", "\uf8ff", "\U0010ffff", "\U0010fffd", "\U000e0041", "\ud7ff", "\x7f", "\x01", "\x1b[0m",
       "\u0080", "\u009f", "\u00ad", "\u2060", "\u200e", "\u202e", "\u2066", "\ufff9", "\u0378", "\U0001fae8", "\U00020000", "\U0001d400",
       "\u2581", "\u2581\u2581", "\u0120", "\u010a", "Ġthe", "ĠĊč", "Ã©", "â€™", "\u0fff", "\u1aff", "\ua8ff"]


def draw(words, low, high):
    return " ".join(R.choice(words) for _ in range(R.randint(low, high)))


def lines():
    for name, words in WORDS.items():
        for w in words:
            yield w
        for _ in range(14):
            yield draw(words, 3, 12)
        yield "".join(R.choice(words) for _ in range(6))
        yield " " + draw(words, 2, 4) + "  "
        yield R.choice(words) + "," + R.choice(words) + "." + R.choice(words) + "!" + R.choice(words) + "?\n"
        yield draw(words, 2, 3).upper() + " (" + draw(words, 1, 2) + ")"
    every = [w for words in WORDS.values() for w in words]
    for _ in range(160):
        yield draw(every, 2, 9)
    for _ in range(60):  # scripts meeting without a blank
        yield "".join(R.choice(every) for _ in range(R.randint(2, 5)))
    for e in EMOJI:
        yield e
        yield "a" + e + "b " + e + e + " " + R.choice(every)
    for _ in range(40):
        yield "".join(R.choice(EMOJI) for _ in range(R.randint(2, 8)))
    for code in CODE:
        yield code
        yield "\t" + code.replace("    ", "\t")
        yield code.replace(" ", "  ")
    for n in list(range(1, 40)) + [62, 63, 64, 65, 93, 94, 127, 128, 129]:
        for c in " \t\n":
            yield c * n
            yield "x" + c * n + "y"
        if n < 36:
            yield " " * n + "\n" + " " * n + "z"
            yield "\n" * n + " " * n
            yield "\r\n" * n + "w"
    for b in BLANKS:
        yield b
        yield "a" + b + "b" + b + b + "c" + b
        yield b + "7" + b + "." + b
    for _ in range(160):
        yield "".join(R.choice(BLANKS + every + CODE[:3]) for _ in range(R.randint(3, 9)))
    for m in MARKERS + BROKEN_MARKERS:
        yield m
        yield "say " + m + " twice" + m + "\n"
        yield m + m + " x" + m[1:] + m[:-1]
    for _ in range(140):
        yield "".join(R.choice(MARKERS + BROKEN_MARKERS + BLANKS[:8] + WORDS["latin"]) for _ in range(R.randint(2, 7)))
    for m in MARKS:
        for base in ("e", "क", "ا", "ก", " ", "!", "9", "\n", "🙂", "", "!!", "\t"):
            yield base + m
            yield "b" + base + m + m + "c"
    for o in ODD:
        yield o
        yield "a" + o + "b"
        yield o + o + " " + o + "\n" + o
    for n in range(1, 14):
        yield "".join(R.choice("0123456789") for _ in range(n))
        yield "x" + "".join(R.choice("0123456789٣५۷௩") for _ in range(n)) + "%"
        yield "-" * n + "=" * n + "." * n + " " + "ab" * n + "é" * n
    for c in "aeb_*=.#é中א🙂\u0301":
        yield c * 97
        yield (c + " ") * 23
    for cat in ("ªºǅʰ", "ℓ℮", "ⅣⅫↀ", "①②⑳", "¼¾", "๑០༠", "₂³", "〇〡", "ﾞﾟ", "ͅ", "ᅟ", "ㅤ", "𝟘𝟡", "🄀", "⁰", "᧐", "੦"):
        yield cat
        yield "x" + cat + "y " + cat
    for _ in range(120):  # anything next to anything
        pool = R.choice([every, EMOJI, MARKS, ODD, BLANKS, MARKERS])
        other = R.choice([every, EMOJI, MARKS, ODD, BLANKS, MARKERS])
        yield "".join(R.choice(R.choice([pool, other])) for _ in range(R.randint(2, 8)))


def main():
    seen = set()
    for line in lines():
        if line not in seen:
            seen.add(line)
            sys.stdout.write(json.dumps(line) + "\n")


main()
