"""The parts of the fake server: language, judge, rules, replies, HTTP."""
