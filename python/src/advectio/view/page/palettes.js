// Palettes, as tables of colours. Those of `forAllEyes` can also be told apart by the colour-blind.
//
// viridis, cividis, inferno: matplotlib (CC0). turbo: Google (Apache-2.0). blue-red, purple-orange, rain: ColorBrewer
// (Apache-2.0), RdBu, PuOr and YlGnBu. radar: the order of colours of radar displays, 5 to 75 dBZ. Colours lie at equal distances; between them they are mixed.

const ANCHORS = {
  "viridis": "440154 471164 482071 472e7c 443b84 3f4889 3a548c 34608d 2f6c8e 2a768e 26818e 228b8d 1f958b 1fa088 24aa83 2fb47c 42be71 58c765 70cf57 8bd646 a8db34 c5e021 e2e418 fde725",
  "cividis": "00224e 002a61 003171 1c396f 2d416d 3a486c 45506c 50576c 5b606e 656870 6e6f73 777777 817f78 8c8878 969077 a19975 ada272 b9ab6d c4b468 d0be62 dcc859 e8d24f f5dc41 fee838",
  "inferno": "000004 060419 120a32 230c4c 360961 490b6a 5a116e 6c186e 7f1e6c 902568 a22b62 b3325a c33b4f d24644 df5337 ea632a f3761b f8890c fb9d07 fcb216 f9c72f f4dd4f f1f179 fcffa4",
  "turbo": "30123b 392a73 4040a2 4456c7 476ee6 4682f8 4196ff 35abf8 25c0e7 1ad2d2 18e0bd 22ebaa 3cf58e 59fb73 79fe59 96fe44 affa37 c3f134 d7e535 e7d739 f5c53a fcb336 fe9e2f fc8725 f66c19 ed5510 e2430a d43305 c12302 ac1701 950d01 7a0403",
  "grey": "000000 ffffff",
  "blue-red": "053061 2065ab 4393c3 90c4dd d1e5f0 f7f6f6 fddbc7 f3a481 d6604d b1182b 67001f",
  "purple-orange": "2d004b 532687 8073ac b1aad1 d8daeb f7f7f6 fee0b6 fcb761 e08214 b25706 7f3b08",
  "radar": "9be3f0 4ab4e6 1f6fd0 1fa84a 0f7d33 0a5a24 f6e34a e8b32a f08a1c e53b23 b81c1c 8a1010 d14fd1 7a3fb0",
  "rain": "ffffd9 edf8b1 c6e9b4 7ecdbb 40b5c4 1d90c0 225da8 243392 081d58",
};

export const NAMES = Object.keys(ANCHORS);
export const DIVERGING = ["blue-red", "purple-orange"];
export const forAllEyes = (name) => !["turbo", "radar"].includes(name);

/** `count` colours of a palette, [r, g, b] each. `steps` > 0: only so many different ones. */
export function colours(name, count, { reverse = false, steps = 0 } = {}) {
  const anchors = ANCHORS[name].split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return Array.from({ length: count }, (_, i) => {
    let t = count > 1 ? i / (count - 1) : 0;
    if (steps > 1) t = Math.min(steps - 1, Math.floor(t * steps)) / (steps - 1);
    if (reverse) t = 1 - t;
    if (name === "radar") return anchors[Math.min(anchors.length - 1, Math.floor(t * anchors.length))]; // one for each 5 dBZ
    const place = t * (anchors.length - 1);
    const k = Math.min(anchors.length - 2, Math.floor(place));
    return anchors[k].map((c, j) => Math.round(c + (anchors[k + 1][j] - c) * (place - k)));
  });
}
