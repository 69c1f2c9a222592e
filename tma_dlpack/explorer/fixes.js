// `tmaFixes` returns the rules that a request breaks, and their fixes. The rules are in libcu++'s order, which is the
// order in which libcu++ checks them. checks/fixes.py and checks/report.py are the Python versions.
//
// A fault is a broken rule, together with the list entry that breaks the rule. A candidate is one possible fix;
// candidates.js describes its fields. An answer is a candidate that removes a fault, with these fields:
//   candidate
//   start, request: the request before and after the candidate is applied
//   left: the faults of `request`
//   isEnough: whether the candidate breaks no new rule
//   isAlone: whether no other candidate was added to this candidate
//   breaks: the ids of the rules that the candidate newly breaks

const tmaFixes = (() => {
  const T = tmaTables, R = tmaRequest, W = tmaCandidates;
  const MAX_STEPS = 4; // maximum number of candidates that are added to one candidate
  const MAX_FIXES = 40; // maximum number of candidates that are applied to one request, one after another
  //: The arguments that determine the size of the tile.
  const TILE = ["box_sizes", "channels_per_pixel", "pixels_per_column", "data_type"];
  // Rules that are fixed first, because other fixes need the right type.
  const OF_TYPE = ["DTYPE", "DATA_TYPE_OVERRIDE"];
  // Arguments that change together, because the sizes of a box are in elements of the data type.
  const UNITS = ["data_type", "box_sizes", "channels_per_pixel"];

  /** Return the faults of a request, in libcu++'s order. A rule is omitted if the request also breaks a prerequisite of
   *  the rule. */
  function faultsOf(request) {
    const failed = R.failuresOf(request);
    const ids = new Set(failed.map(([row]) => T.RULES[row].id));
    const here = new Set(failed.map(([row, entry]) => `${T.RULES[row].id} ${Math.max(0, entry)}`));
    const found = [];
    for (const [row, entry] of failed) {
      const rule = T.RULES[row], at = Math.max(0, entry);
      if ((rule.after ?? []).some((id) => ids.has(id))) continue;
      if ((rule.prerequisites_at_entry ?? []).some((id) => here.has(`${id} ${at}`))) continue;
      const nth = rule.outermost_first ? -entry : entry;
      found.push({ rule, row, entry, nth, key: `${rule.id} ${entry}` });
    }
    found.sort((x, y) => x.rule.step - y.rule.step || x.nth - y.nth || x.row - y.row);
    return found;
  }

  /** Return the name of the argument to which a fault belongs. */
  function argumentOf({ rule }, a) {
    if (!Array.isArray(rule.on)) return rule.on;
    return W.extentBreaks(a) ? "tensor.shape" : "box_sizes";
  }

  /** Return whether two faults belong to the same entry of the same argument. The faults may be of different
   *  requests. */
  const isSame = (one, a, other, b) => argumentOf(one, a) === argumentOf(other, b)
    && Math.max(0, one.entry) === Math.max(0, other.entry);

  const keysOf = (faults) => new Set(faults.map(({ key }) => key));
  const idsOf = (faults) => new Set(faults.map(({ rule }) => rule.id));
  const isWithin = (some, all) => [...some].every((key) => all.has(key));

  /** Return whether a candidate fixes `fault` only in part. This is true if one of the faults `left` belongs to the
   *  same entry as `fault`. If the candidate has a view, this is also true if one of the faults `left` belongs to the
   *  tensor. */
  const isPart = (candidate, left, b, fault, a) => left.some((f) => isSame(f, b, fault, a)
    || (candidate.view && argumentOf(f, b).startsWith("tensor.")));

  /** Return the best answer for a fault. Candidates that do not remove the fault are skipped. The best answer is the
   *  first candidate that breaks no new rule and leaves no fault of the same entry. The second best is the first
   *  candidate that breaks no new rule, and the third best is the first candidate that is not skipped. Return null if
   *  all candidates are skipped. */
  function first(request, a, fault, candidates, known) {
    let enough = null, some = null;
    for (const candidate of candidates) {
      const after = W.applied(request, candidate);
      let left;
      try {
        left = faultsOf(after);
      } catch (error) {
        if (!(error instanceof RangeError)) throw error; // RangeError: the core cannot read such numbers
        continue;
      }
      const answer = { candidate, start: request, request: after, left, isEnough: true, isAlone: true };
      if (!left.length) return answer;
      // A view may have other dimensions than the tensor, so only the ids of the rules are compared, not the entries.
      const broken = candidate.view ? idsOf(left) : keysOf(left);
      if (broken.has(candidate.view ? fault.rule.id : fault.key)) continue;
      answer.isEnough = isWithin(broken, candidate.view ? idsOf(known) : keysOf(known));
      if (!answer.isEnough) some ??= answer;
      else if (isPart(candidate, left, R.read(after), fault, a)) enough ??= answer;
      else return answer;
    }
    return enough ?? some;
  }

  /** Return the best answer of each alternative for a fault. An alternative is a list of candidates. An answer may
   *  break other rules. */
  function stepsOf(request, fault, known, keepsTensor = false) {
    const a = R.read(request);
    return W.alternatives(request, a, fault)
      .map((candidates) => (keepsTensor ? candidates.filter(({ view }) => !view) : candidates))
      .map((candidates) => first(request, a, fault, candidates, known)).filter(Boolean);
  }

  /** Return the answers to a fault. If some answers break no new rule, return only these answers. Otherwise return the
   *  first answer, together with fixes of the rules that the answer breaks. */
  function answersOf(request, fault, known, keepsTensor = false) {
    const steps = stepsOf(request, fault, known, keepsTensor), found = steps.filter(({ isEnough }) => isEnough);
    const others = known.filter((f) => f !== fault);
    if (!found.length) return steps.slice(0, 1).map((step) => continued(step, others, keepsTensor));
    const least = idsOf(found[0].left);
    return found.filter(({ left }) => !left.length || isWithin(idsOf(left), least));
  }

  /** Extend an answer by candidates that fix the rules that the answer newly breaks. If MAX_STEPS candidates are not
   *  enough, return the answer as a guess. */
  function continued(step, known, keepsTensor) {
    let answer = step, change = { ...step.candidate.change }, { view } = step.candidate;
    const before = keysOf(known);
    for (let n = 0; n < MAX_STEPS; ++n) {
      if (answer.isEnough) {
        const candidate = { change, view, isGuess: step.candidate.isGuess };
        return { ...answer, start: step.start, candidate, isAlone: false };
      }
      const fresh = answer.left.find(({ key }) => !before.has(key));
      const steps = stepsOf(answer.request, fresh, known, keepsTensor).filter(({ candidate }) => !candidate.isGuess);
      const next = steps.find(({ isEnough }) => isEnough) ?? steps[0];
      if (!next) break;
      answer = next;
      change = { ...change, ...answer.candidate.change };
      view = answer.candidate.view ?? view;
    }
    const fresh = step.left.filter(({ key }) => !before.has(key));
    return { ...step, candidate: { ...step.candidate, isGuess: true }, breaks: [...idsOf(fresh)] };
  }

  /** Return the keys of the other faults that every answer for `fault` also removes. The set is empty if an answer only
   *  switches off a rule. */
  function removedBy(fault, a, faults, answers) {
    const isLeftOut = ({ change }) => Object.keys(change).join() === "allow";
    const changing = answers.filter(({ candidate }) => !candidate.isGuess);
    const leavesOut = changing.some(({ candidate }) => isLeftOut(candidate));
    if (leavesOut || !changing.length || !changing.every(({ isAlone }) => isAlone)) return new Set();
    const isGone = (f) => ({ candidate, left }) => (candidate.view
      ? !left.some(({ rule }) => rule === f.rule)
      : !left.some(({ key }) => key === f.key) && !isSame(f, a, fault, a));
    return keysOf(faults.filter((f) => changing.every(isGone(f))));
  }

  /** Return a list of {fault, answers, breaks} for a request. A fault is omitted if all answers for an earlier fault
   *  remove this fault too. Only the last entry of the list may have `breaks`, the ids that `brokenByAll` returns. */
  function violationsOf(request) {
    const faults = faultsOf(request), a = R.read(request), gone = new Set(), found = [];
    let typed = request;
    for (const fault of faults) {
      if (gone.has(fault.key)) continue;
      const answers = answersOf(typed, fault, faults), [best] = answers;
      found.push({ fault, answers });
      if (fault === faults[faults.length - 1]) break;
      for (const key of removedBy(fault, a, faults, answers)) gone.add(key);
      if (OF_TYPE.includes(fault.rule.id) && best?.isAlone && best.isEnough) typed = best.request;
    }
    if (found.length > 1 && !isAcceptedByDriver(request, faults))
      found[found.length - 1].breaks = brokenByAll(request, found);
    return found;
  }

  /** Return whether the driver accepts a request. The driver has fewer rules than libcu++. */
  function isAcceptedByDriver(request, faults) {
    const ids = idsOf(faults), { rules } = R.read({ ...request, rules: "driver" });
    if ([...ids].every((id) => T.ALLOWABLE.includes(id)))
      return !isRefused({ ...request, allow: [...(request.allow ?? []), ...ids] });
    if (faults.some(({ rule }) => rule.unsupported || rule.sets.includes(rules))) return false;
    return !isRefused({ ...request, rules: "driver" });
  }

  /** Apply the first answers of all faults together, and return the ids of the rules that are then broken. Rules that a
   *  fault or an answer already names are omitted. */
  function brokenByAll(request, found) {
    let current = request, isOther = false;
    for (const { fault, answers } of found) {
      if (!answers.length) continue;
      let { candidate } = answers[0], base = request;
      // If an earlier candidate changed the tensor, a candidate for the new tensor is needed.
      if (candidate.view && isOther) {
        const left = faultsOf(current), again = left.find(({ rule }) => rule === fault.rule);
        const others = again ? answersOf(current, again, left) : [];
        if (!others.length) continue;
        [{ candidate }] = others;
        base = current;
      }
      const merged = Object.entries(candidate.change)
        .map(([name, value]) => [name, mergedValue(base, current, name, value)]);
      current = W.applied(current, { ...candidate, change: Object.fromEntries(merged) });
      isOther ||= Boolean(candidate.view);
    }
    const named = new Set(found.flatMap(({ fault, answers }) => [fault.rule.id, ...(answers[0]?.breaks ?? [])]));
    return [...idsOf(faultsOf(current))].filter((id) => !named.has(id));
  }

  /** Return the value of argument `name` after two candidates are applied. If the argument is a list, the two
   *  candidates may change different entries. */
  function mergedValue(base, current, name, value) {
    const was = base[name], now = current[name];
    const isList = ["box_sizes", "elem_strides"].includes(name) && value?.length && was?.length && now?.length;
    if (!isList || value.length !== was.length) return value;
    // A candidate may remove outer dimensions. Merge only the entries of the remaining dimensions.
    const count = Math.min(value.length, now.length);
    const [news, olds, nows] = [value, was, now].map((list) => list.slice(-count));
    return [...now.slice(0, now.length - count), ...news.map((n, d) => (n !== olds[d] ? n : nows[d]))];
  }

  // -- a whole request, with the same memory -----------------------------------------------------

  const isRefused = (request) => faultsOf(request).length > 0;

  /** Return changed arguments with which a request is accepted; null if the tensor itself must change. */
  function changesOf(request) {
    const change = acceptedChange(request);
    return change ? needed(request, change) : permutedChange(request);
  }

  /** Return changed arguments with which a request is accepted, or null. A request selects one set of rules, for
   *  example the rules of libcu++. If no arguments satisfy this set, the set of the driver's rules is tried. */
  function acceptedChange(request) {
    const { change, stuck } = searched(request);
    if (change) return change;
    const byDriver = { ...request, rules: "driver" }, { rules } = R.read(byDriver);
    const isLifted = stuck.every(({ rule }) => !rule.sets.includes(rules))
      && faultsOf(request).every(({ rule }) => !rule.unsupported || rule.sets.includes(rules));
    const lifted = isLifted ? searched(byDriver).change : null;
    return lifted && { rules: "driver", ...lifted };
  }

  /** Return a change that permutes the dimensions of the tensor and of the box, so that the map still copies the same
   *  tile. Return null if no such change is accepted. */
  function permutedChange(request) {
    const { kind = "tiled", shape, box_sizes: box } = request;
    if (kind !== "tiled" || !shape.length || box.length !== shape.length) return null;
    const a = R.read(request);
    const layout = (r) => JSON.stringify(r.shape.map((n, d) => `${n} ${r.strides[d]}`).sort());
    for (const fault of faultsOf(request))
      for (const candidate of W.alternatives(request, a, fault).flat()) {
        const other = W.applied(request, candidate), { view } = candidate;
        if (!view || view.address !== W.viewOf(request).address || view.dtype !== request.dtype) continue;
        if (![...view.shape, ...view.strides].every(Number.isSafeInteger)) continue; // numbers above 2^53 were rounded
        if (layout(other) !== layout(W.applied(request, { ...candidate, view: W.viewOf(request) }))) continue;
        const more = acceptedChange(other);
        if (!more || TILE.some((name) => name in more)) continue;
        const isMoved = view.shape.some((n, d) => n !== shape[d]);
        const change = { strides: other.strides, ...candidate.change, ...(isMoved ? { shape: view.shape } : {}) };
        return { ...change, ...needed(other, more) };
      }
    return null;
  }

  /** Search for arguments with which a request is accepted, and return {change, stuck}. `change` has these arguments;
   *  null if none are found. `stuck` has the faults for which no fix was found. A change makes the tile smaller only if
   *  `mayShrink` allows it. The argument `without` is not changed. */
  function searched(request, without = "") {
    const start = request, change = {};
    const isClear = ({ candidate }) => !candidate.isGuess && !candidate.view && !(without in candidate.change);
    let isInOrder = true;
    for (let n = 0; n < MAX_FIXES; ++n) {
      const faults = faultsOf(request);
      if (!faults.length) return { change, stuck: [] };
      let { answer, unsolved } = keptOrSmaller(request, faults, isClear);
      if (answer && shrinks(answer) && !mayShrink(start, isClear)) answer = null;
      if (!answer) { // no single answer is enough, so take an answer that may break other rules
        const isAllowed = mayShrink(start, isClear);
        const mayBeTaken = (step) => isClear(step) && (isAllowed || !shrinks(step));
        for (const fault of unsolved) answer ??= stepsOf(request, fault, [], true).find(mayBeTaken);
        isInOrder &&= !answer;
      }
      if (!answer && "split_inner" in change) return searched(start, "split_inner");
      if (!answer) return { change: null, stuck: isInOrder ? faults : [] };
      Object.assign(change, answer.candidate.change);
      request = { ...request, ...answer.candidate.change };
    }
    return { change: null, stuck: [] };
  }

  /** Return the first answer that does not make the tile smaller. If every answer makes the tile smaller, return the
   *  first answer. Also return `unsolved`, the faults that no single candidate fixes. */
  function keptOrSmaller(request, faults, isClear) {
    const unsolved = [], isOne = ({ isAlone, isEnough }) => isAlone && isEnough;
    let smaller = null;
    for (const fault of faults) {
      const answers = answersOf(request, fault, faults, true);
      if (!answers.length || !isOne(answers[0])) {
        if (answersOf(request, fault, faults).some(isOne)) continue; // a view or a copy of the tensor fixes this fault
        unsolved.push(fault);
      }
      const clear = answers.filter(isClear), kept = clear.find((answer) => !shrinks(answer));
      if (kept) return { answer: kept, unsolved: [] };
      smaller ??= clear[0] ?? null;
    }
    return { answer: smaller, unsolved };
  }

  const shrinks = ({ request, start }) => R.read(request).box_bits < R.read(start).box_bits;

  /** Return whether a repair may make the tile smaller. A repair may do so if a fault belongs to an argument of `TILE`,
   *  or if an answer for a fault makes the tile smaller. */
  function mayShrink(request, isClear) {
    const faults = faultsOf(request), a = R.read(request);
    return faults.some((fault) => TILE.includes(argumentOf(fault, a))
      || answersOf(request, fault, faults).filter(isClear).some(shrinks));
  }

  /** Return a change without the arguments that are not necessary for the request to be accepted. */
  function needed(request, change) {
    const units = "data_type" in change ? UNITS.filter((name) => name in change) : [];
    const groups = Object.keys(change).filter((name) => !units.includes(name)).map((name) => [name]);
    for (const names of units.length ? [...groups, units] : groups) {
      const fewer = Object.fromEntries(Object.entries(change).filter(([name]) => !names.includes(name)));
      if (Object.keys(fewer).length && !isRefused({ ...request, ...fewer })) return needed(request, fewer);
    }
    return change;
  }

  return { faultsOf, violationsOf, changesOf, argumentOf };
})();
