// HTML for scripts: a tree, selectors, and selections. Evaluated when a script needs it first.
(() => {
  const native = globalThis.__linerate;
  const words = (text) => new Set(text.split(' '));
  const VOID = words('area base br col embed hr img input link meta source track wbr');
  const RAW = words('script style textarea title noscript');
  // What an open element of this kind is closed by.
  const CLOSED_BY = { p: words('p div ul ol table form section article h1 h2 h3 h4 h5 h6 pre blockquote'), li: words('li'), dt: words('dt dd'), dd: words('dt dd'),
    option: words('option optgroup'), tr: words('tr tbody tfoot'), td: words('td th tr'), th: words('td th tr'), thead: words('tbody tfoot'), tbody: words('tbody tfoot') };
  const NAMED = { amp: '&', lt: '<', gt: '>', quot: '"', apos: '\'', nbsp: '\xa0', copy: '©', reg: '®', euro: '€', pound: '£', yen: '¥', cent: '¢', sect: '§',
    laquo: '«', raquo: '»', lsquo: '‘', rsquo: '’', ldquo: '“', rdquo: '”', ndash: '–', mdash: '—', hellip: '…', middot: '·', times: '×', trade: '™', bull: '•',
    auml: 'ä', ouml: 'ö', uuml: 'ü', Auml: 'Ä', Ouml: 'Ö', Uuml: 'Ü', szlig: 'ß', eacute: 'é', egrave: 'è', agrave: 'à', ccedil: 'ç', ntilde: 'ñ' };
  // Reason: a selector looks at all elements around one.
  const DEPTH = 500;

  const decoded = (text) => (!text.includes('&') ? text : text.replace(/&(?:#(\d+)|#[xX]([0-9a-fA-F]+)|(\w+));?/g, (all, decimal, hex, name) => {
    if (name !== undefined) return Object.hasOwn(NAMED, name) ? NAMED[name] : all;
    const code = decimal !== undefined ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd';
  }));

  const node = (tag, attributes, parent) => ({ tag, attributes, children: [], parent });
  const TAG = /<([a-zA-Z][^\s/>]*)((?:[^>"']|"[^"]*"|'[^']*')*)>/y;
  const ATTRIBUTE = /([^\s=/"'>]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?/g;

  function attributesOf(text) {
    const all = new Map();
    for (const [, name, double, single, bare] of text.matchAll(ATTRIBUTE)) {
      const key = name.toLowerCase();
      if (!all.has(key)) all.set(key, decoded(double ?? single ?? bare ?? ''));
    }
    return all;
  }

  function tree(html) {
    const root = node('#document', new Map(), null);
    let [top, depth, at] = [root, 0, 0];
    const add = (text) => { if (text !== '') top.children.push({ text, parent: top }); };
    while (at < html.length) {
      const open = html.indexOf('<', at);
      add(decoded(html.slice(at, open < 0 ? html.length : open)));
      if (open < 0) break;
      at = open;
      if (html.startsWith('<!--', at)) {
        const end = html.indexOf('-->', at + 4);
        at = end < 0 ? html.length : end + 3;
      } else if (html[at + 1] === '!' || html[at + 1] === '?') {
        const end = html.indexOf('>', at);
        at = end < 0 ? html.length : end + 1;
      } else if (html[at + 1] === '/') {
        const end = html.indexOf('>', at);
        const name = html.slice(at + 2, end < 0 ? html.length : end).trim().toLowerCase();
        at = end < 0 ? html.length : end + 1;
        let [closing, levels] = [top, 1];
        while (closing !== root && closing.tag !== name) { closing = closing.parent; levels += 1; }
        if (closing !== root) { top = closing.parent; depth -= levels; }
      } else {
        TAG.lastIndex = at;
        const found = TAG.exec(html);
        if (found === null) { add('<'); at += 1; continue; }
        at = TAG.lastIndex;
        const name = found[1].toLowerCase();
        while (Object.hasOwn(CLOSED_BY, top.tag) && CLOSED_BY[top.tag].has(name)) { top = top.parent; depth -= 1; }
        const element = node(name, attributesOf(found[2]), top);
        top.children.push(element);
        if (RAW.has(name)) {
          const rest = html.slice(at).search(new RegExp(`</${name}`, 'i'));
          const text = rest < 0 ? html.slice(at) : html.slice(at, at + rest);
          if (text !== '') element.children.push({ text: name === 'textarea' || name === 'title' ? decoded(text) : text, parent: element });
          at += text.length;
          const end = html.indexOf('>', at);
          at = end < 0 ? html.length : end + 1;
        } else if (!VOID.has(name) && !found[2].endsWith('/') && depth < DEPTH) {
          top = element;
          depth += 1;
        }
      }
    }
    return root;
  }

  const isElement = (one) => one.tag !== undefined && one.tag !== '#document';
  const elements = (one) => one.children.filter(isElement);
  // Trees may be deeper than calls can be: these keep what is left by themselves.
  const visited = function* visited(one) {
    const left = [one];
    while (left.length > 0) {
      const next = left.pop();
      yield next;
      for (let i = (next.children || []).length - 1; i >= 0; i--) left.push(next.children[i]);
    }
  };
  const textOf = (one) => {
    let text = '';
    for (const part of visited(one)) if (part.tag === undefined) text += part.text;
    return text;
  };
  const quoted = (text) => text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&#34;' })[c]);
  const written = (nodes) => {
    const left = [...nodes].reverse();
    let html = '';
    while (left.length > 0) {
      const one = left.pop();
      if (typeof one === 'string') { html += one; continue; }
      if (one.tag === undefined) { html += RAW.has(one.parent.tag) ? one.text : quoted(one.text); continue; }
      const attributes = [...one.attributes].map(([name, value]) => ` ${name}="${quoted(value)}"`).join('');
      html += `<${one.tag}${attributes}${VOID.has(one.tag) ? '/' : ''}>`;
      if (!VOID.has(one.tag)) left.push(`</${one.tag}>`);
      for (let i = one.children.length - 1; i >= 0; i--) left.push(one.children[i]);
    }
    return html;
  };
  const siblings = (one) => elements(one.parent);

  const place = (one, wanted) => {
    const nth = siblings(one).indexOf(one) + 1;
    if (wanted === 'odd' || wanted === 'even') return nth % 2 === (wanted === 'odd' ? 1 : 0);
    const [, step, offset] = /^(?:([-+]?\d*)n)?\s*([-+]?\s*\d+)?$/.exec(wanted) || [];
    const a = step === undefined ? 0 : step === '' || step === '+' ? 1 : step === '-' ? -1 : Number(step);
    const b = offset === undefined ? 0 : Number(offset.replace(/\s/g, ''));
    return a === 0 ? nth === b : (nth - b) / a >= 0 && (nth - b) % a === 0;
  };
  const PSEUDO = {
    'first-child': (one) => siblings(one)[0] === one,
    'last-child': (one) => siblings(one).at(-1) === one,
    'only-child': (one) => siblings(one).length === 1,
    'nth-child': place,
    empty: (one) => one.children.length === 0,
    checked: (one) => one.attributes.has('checked') || (one.tag === 'option' && one.attributes.has('selected')),
    selected: (one) => one.attributes.has('selected'),
    disabled: (one) => one.attributes.has('disabled'),
    enabled: (one) => !one.attributes.has('disabled'),
    contains: (one, text) => textOf(one).includes(text.replace(/^["']|["']$/g, '')),
    not: (one, selector) => !matches(one, selector),
    has: (one, selector) => within(one, selector).length > 0,
  };
  const OPERATORS = {
    '=': (a, b) => a === b, '~=': (a, b) => a.split(/\s+/).includes(b), '|=': (a, b) => a === b || a.startsWith(`${b}-`),
    '^=': (a, b) => b !== '' && a.startsWith(b), '$=': (a, b) => b !== '' && a.endsWith(b), '*=': (a, b) => b !== '' && a.includes(b), '!=': (a, b) => a !== b,
  };
  const TEST = /([a-zA-Z][\w-]*|\*)|#([\w-]+)|\.([\w-]+)|\[\s*([\w:-]+)\s*(?:([~|^$*!]?=)\s*(?:"([^"]*)"|'([^']*)'|([^\]\s]*)))?\s*\]|:([a-z-]+)(?:\(((?:[^()]|\([^()]*\))*)\))?/y;
  const COMBINATOR = /\s*([>+~,])\s*|\s+/y;

  function compiled(selector) {
    const text = String(selector).trim();
    const wrong = () => new Error(`the selector ${JSON.stringify(text)} is not supported by linerate`);
    const groups = [[{ by: ' ', tests: [] }]];
    let at = 0;
    while (at < text.length) {
      TEST.lastIndex = at;
      const found = TEST.exec(text);
      const steps = groups.at(-1);
      if (found !== null) {
        const [, tag, id, name, attribute, operator, double, single, bare, pseudo, argument] = found;
        let test;
        if (tag !== undefined) test = (one) => tag === '*' || one.tag === tag.toLowerCase();
        else if (id !== undefined) test = (one) => one.attributes.get('id') === id;
        else if (name !== undefined) test = (one) => (one.attributes.get('class') || '').split(/\s+/).includes(name);
        else if (attribute !== undefined) {
          const key = attribute.toLowerCase();
          const value = double ?? single ?? bare ?? '';
          test = operator === undefined ? (one) => one.attributes.has(key)
            : (one) => (operator === '!=' || one.attributes.has(key)) && OPERATORS[operator](one.attributes.get(key) ?? '', value);
        } else {
          if (!Object.hasOwn(PSEUDO, pseudo)) throw wrong();
          test = (one) => PSEUDO[pseudo](one, argument ?? '');
        }
        steps.at(-1).tests.push(test);
        at = TEST.lastIndex;
        continue;
      }
      COMBINATOR.lastIndex = at;
      const between = COMBINATOR.exec(text);
      if (between === null || steps.at(-1).tests.length === 0) throw wrong();
      if (between[1] === ',') groups.push([{ by: ' ', tests: [] }]);
      else steps.push({ by: between[1] || ' ', tests: [] });
      at = COMBINATOR.lastIndex;
    }
    if (groups.some((steps) => steps.at(-1).tests.length === 0)) throw wrong();
    return groups;
  }

  function fits(one, steps, last) {
    if (!isElement(one) || !steps[last].tests.every((test) => test(one))) return false;
    if (last === 0) return true;
    const { by } = steps[last];
    if (by === '>') return fits(one.parent, steps, last - 1);
    if (by === ' ') {
      for (let above = one.parent; above !== null; above = above.parent) if (fits(above, steps, last - 1)) return true;
      return false;
    }
    const before = siblings(one).slice(0, siblings(one).indexOf(one));
    return by === '+' ? before.length > 0 && fits(before.at(-1), steps, last - 1) : before.some((other) => fits(other, steps, last - 1));
  }

  // The last selectors, compiled.
  const known = new Map();
  function groupsOf(selector) {
    if (known.has(selector)) return known.get(selector);
    if (known.size >= 100) known.clear();
    const groups = compiled(selector);
    known.set(selector, groups);
    return groups;
  }

  function matches(one, selector) { return groupsOf(selector).some((steps) => fits(one, steps, steps.length - 1)); }

  function within(top, selector) {
    const groups = groupsOf(selector);
    const all = [];
    for (const one of visited(top)) {
      if (one !== top && isElement(one) && groups.some((steps) => fits(one, steps, steps.length - 1))) all.push(one);
    }
    return all;
  }

  class Element {
    #one;
    constructor(one) { this.#one = one; }
    nodeName() { return this.#one.tag; }
    nodeType() { return 1; }
    id() { return this.getAttribute('id') ?? ''; }
    getAttribute(name) { return this.#one.attributes.get(String(name).toLowerCase()); }
    hasAttribute(name) { return this.#one.attributes.has(String(name).toLowerCase()); }
    textContent() { return textOf(this.#one); }
    innerHTML() { return written(this.#one.children); }
    value() { return valueOf(this.#one); }
    children() { return elements(this.#one).map((child) => new Element(child)); }
    selection() { return new Selection([this.#one]); }
  }

  function valueOf(one) {
    const selected = () => within(one, 'option').filter((option) => option.attributes.has('selected'));
    const option = (other) => other.attributes.get('value') ?? textOf(other);
    switch (one.tag) {
      case 'textarea': return textOf(one);
      case 'option': return option(one);
      case 'select': {
        if (one.attributes.has('multiple')) return selected().map(option);
        const chosen = selected()[0] || within(one, 'option')[0];
        return chosen === undefined ? undefined : option(chosen);
      }
      case 'input': return one.attributes.get('value') ?? (['checkbox', 'radio'].includes(one.attributes.get('type')) ? 'on' : '');
      default: return one.attributes.get('value');
    }
  }

  class Selection {
    #nodes;
    constructor(nodes, url) { this.#nodes = nodes; Object.defineProperty(this, 'url', { value: url }); }

    #of(nodes) { return new Selection([...new Set(nodes)], this.url); }
    #tested(given) {
      if (typeof given === 'function') return (one, i) => given(i, new Element(one));
      if (given instanceof Selection) return (one) => given.#nodes.includes(one);
      return (one) => isElement(one) && matches(one, String(given));
    }
    #beside(distance, selector) {
      const beside = this.#nodes.map((one) => siblings(one)[siblings(one).indexOf(one) + distance]).filter((one) => one !== undefined);
      return this.#of(selector === undefined ? beside : beside.filter(this.#tested(selector)));
    }
    #row(isAfter, selector) {
      const all = this.#nodes.flatMap((one) => {
        const at = siblings(one).indexOf(one);
        return isAfter ? siblings(one).slice(at + 1) : siblings(one).slice(0, at).reverse();
      });
      return this.#of(selector === undefined ? all : all.filter(this.#tested(selector)));
    }
    #above(selector) {
      const all = [];
      for (const one of this.#nodes) for (let above = one.parent; above && isElement(above); above = above.parent) all.push(above);
      return this.#of(selector === undefined ? all : all.filter(this.#tested(selector)));
    }

    size() { return this.#nodes.length; }
    find(selector) { return this.#of(this.#nodes.flatMap((one) => within(one, String(selector)))); }
    first() { return this.#of(this.#nodes.slice(0, 1)); }
    last() { return this.#of(this.#nodes.slice(-1)); }
    eq(i) { const one = this.#nodes.at(i); return this.#of(one === undefined ? [] : [one]); }
    slice(from, to) { return this.#of(this.#nodes.slice(from, to)); }
    get(i) { const one = this.#nodes.at(i); return one === undefined ? undefined : new Element(one); }
    toArray() { return this.#nodes.map((one) => this.#of([one])); }
    each(f) { this.#nodes.forEach((one, i) => f(i, new Element(one))); return this; }
    map(f) { return this.#nodes.map((one, i) => f(i, this.#of([one]))).map((value) => (value === undefined ? '' : value)); }
    filter(given) { return this.#of(this.#nodes.filter(this.#tested(given))); }
    not(given) { const test = this.#tested(given); return this.#of(this.#nodes.filter((one, i) => !test(one, i))); }
    is(given) { return this.#nodes.some(this.#tested(given)); }
    has(selector) { return this.#of(this.#nodes.filter((one) => within(one, String(selector)).length > 0)); }
    children(selector) {
      const all = this.#nodes.flatMap(elements);
      return this.#of(selector === undefined ? all : all.filter(this.#tested(selector)));
    }
    contents() { return this.#of(this.#nodes.flatMap((one) => one.children)); }
    parent(selector) {
      const all = this.#nodes.map((one) => one.parent).filter((one) => one !== null);
      return this.#of(selector === undefined ? all : all.filter(this.#tested(selector)));
    }
    parents(selector) { return this.#above(selector); }
    closest(selector) {
      const nearest = (one) => { for (let at = one; at !== null; at = at.parent) if (isElement(at) && matches(at, String(selector))) return [at]; return []; };
      return this.#of(this.#nodes.flatMap(nearest));
    }
    next(selector) { return this.#beside(1, selector); }
    prev(selector) { return this.#beside(-1, selector); }
    nextAll(selector) { return this.#row(true, selector); }
    prevAll(selector) { return this.#row(false, selector); }
    siblings(selector) {
      const all = this.#nodes.flatMap((one) => siblings(one).filter((other) => other !== one));
      return this.#of(selector === undefined ? all : all.filter(this.#tested(selector)));
    }
    attr(name, fallback) {
      const one = this.#nodes[0];
      return (one && isElement(one) ? one.attributes.get(String(name).toLowerCase()) : undefined) ?? fallback;
    }
    data(name) {
      const key = String(name).replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`);
      const text = this.attr(`data-${key}`);
      if (text === undefined) return undefined;
      try { return JSON.parse(text); } catch (error) { return text; }
    }
    text() { return this.#nodes.map(textOf).join(''); }
    html() { return this.#nodes.length === 0 ? undefined : written(this.#nodes[0].children || []); }
    val() { return this.#nodes.length === 0 ? undefined : valueOf(this.#nodes[0]); }
    serializeArray() {
      const isSent = (one) => one.attributes.get('name') && !one.attributes.has('disabled')
        && !(one.tag === 'input' && /^(submit|button|image|reset|file)$/.test(one.attributes.get('type') || ''))
        && (!['checkbox', 'radio'].includes(one.attributes.get('type')) || one.attributes.has('checked'));
      const fields = this.#nodes.flatMap((one) => (one.tag === 'form' ? within(one, 'input, select, textarea') : [one])).filter(isSent);
      return fields.flatMap((one) => [valueOf(one)].flat().map((value) => ({ name: one.attributes.get('name'), value })));
    }
    serializeObject() { return Object.fromEntries(this.serializeArray().map(({ name, value }) => [name, value])); }
    serialize() { return this.serializeArray().map(({ name, value }) => `${native.formEncode(name)}=${native.formEncode(value)}`).join('&'); }
  }

  return { parseHTML: (html, url) => new Selection([tree(String(html))], url), Selection, Element };
})();
