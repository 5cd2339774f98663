"""Cases of the survey that have no file here, and why they cannot exist in this design."""

ABSENT = {
    "E09": "reads a peer rank's result buffer: one candidate is judged on one device, and no other device's memory is lent to it",
    "G14": "a baseline from another machine or day: no stored time is ever read, the reference is timed in the same rounds",
}
