package token

var WellFormed = wellFormed
