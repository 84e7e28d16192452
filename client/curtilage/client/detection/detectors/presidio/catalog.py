"""Which of Presidio's recognizers may run, and the class of their findings.

A table only: nothing is imported from Presidio here. A policy's packs select from it by
name, and a recognizer that is not listed is never built. Omitted on purpose, with ours
in their place:

- Email fetches the public suffix list and drops private domains (F5, F6).
- Iban skips a pattern that times out (F1).
- Url, InPan and UsHealthInsuranceMemberId take quadratic time (F2, F3).
- TrLicensePlate and NgVehicleRegistration read "20 and 10" and "for 235pm" as
  number plates, the first with a check that any province number passes;
  UkVehicleRegistration reads "for 20 a" near "care" or "card" as one.
- Spacy, Stanza, GLiNER and similar ones load models; Azure and LangExtract send
  texts to a server.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PHONE: Final = "PhoneRecognizer"  # runs no patterns: see ``phone``

RECOGNIZERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PHONE: "identifier.direct.phone",
        # payment and finance
        "AbaRoutingRecognizer": "financial.aba",
        "CreditCardRecognizer": "financial.pan",
        "CryptoRecognizer": "financial.crypto",
        "UsBankRecognizer": "financial.account",
        "AuAbnRecognizer": "financial.tax_id",
        "AuAcnRecognizer": "financial.tax_id",
        "DeHandelsregisterRecognizer": "financial.tax_id",
        "DeTaxNumberRecognizer": "financial.tax_id",
        "DeVatIdRecognizer": "financial.tax_id",
        "InGstinRecognizer": "financial.tax_id",
        "ItVatCodeRecognizer": "financial.tax_id",
        "KrBrnRecognizer": "financial.tax_id",
        "PhTinRecognizer": "financial.tax_id",
        "SeOrganisationsnummerRecognizer": "financial.tax_id",
        "SgUenRecognizer": "financial.tax_id",
        "UsProviderTaxIdRecognizer": "financial.tax_id",
        "ZaCompanyRegistrationRecognizer": "financial.tax_id",
        "ZaIncomeTaxNumberRecognizer": "financial.tax_id",
        "ZaVatNumberRecognizer": "financial.tax_id",
        # health care
        "DeBsnrRecognizer": "health.provider",
        "DeHealthInsuranceRecognizer": "health.plan_id",
        "DeLanrRecognizer": "health.provider",
        "MedicalLicenseRecognizer": "health.dea",
        "UsClaimNumberRecognizer": "health.plan_id",
        "UsMbiRecognizer": "health.plan_id",
        "UsNpiRecognizer": "health.npi",
        "UsPrescriptionNumberRecognizer": "health.plan_id",
        "UsPriorAuthorizationNumberRecognizer": "health.plan_id",
        "UsReferralNumberRecognizer": "health.plan_id",
        # issued by a state to a person
        "AuMedicareRecognizer": "identifier.direct.gov_id.au_medicare",
        "AuTfnRecognizer": "identifier.direct.gov_id.au_tfn",
        "CaSinRecognizer": "identifier.direct.gov_id.ca_sin",
        "DeIdCardRecognizer": "identifier.direct.gov_id.de_id",
        "DeSocialSecurityRecognizer": "identifier.direct.gov_id.de_svnr",
        "DeTaxIdRecognizer": "identifier.direct.gov_id.de_tax_id",
        "EsNieRecognizer": "identifier.direct.gov_id.es_nie",
        "EsNifRecognizer": "identifier.direct.gov_id.es_nif",
        "FiPersonalIdentityCodeRecognizer": "identifier.direct.gov_id.fi_hetu",
        "InAadhaarRecognizer": "identifier.direct.gov_id.in_aadhaar",
        "InVoterRecognizer": "identifier.direct.gov_id.in_voter",
        "ItFiscalCodeRecognizer": "identifier.direct.gov_id.it_cf",
        "ItIdentityCardRecognizer": "identifier.direct.gov_id.other",
        "KrFrnRecognizer": "identifier.direct.gov_id.kr_rrn",
        "KrRrnRecognizer": "identifier.direct.gov_id.kr_rrn",
        "NgNinRecognizer": "identifier.direct.gov_id.ng_nin",
        "NhsRecognizer": "identifier.direct.gov_id.uk_nhs",
        "PhUmidRecognizer": "identifier.direct.gov_id.ph_umid",
        "PlPeselRecognizer": "identifier.direct.gov_id.pl_pesel",
        "SePersonnummerRecognizer": "identifier.direct.gov_id.se_pnr",
        "SgFinRecognizer": "identifier.direct.gov_id.sg_nric",
        "ThTninRecognizer": "identifier.direct.gov_id.th_tnin",
        "TrNationalIdRecognizer": "identifier.direct.gov_id.tr_tckn",
        "UkNinoRecognizer": "identifier.direct.gov_id.uk_nino",
        "UsItinRecognizer": "identifier.direct.gov_id.us_itin",
        "UsSsnRecognizer": "identifier.direct.gov_id.us_ssn",
        "ZaIdNumberRecognizer": "identifier.direct.gov_id.za_id",
        "ZaTrafficRegisterNumberRecognizer": "identifier.direct.gov_id.other",
        # passports and licences
        "DeFuehrerscheinRecognizer": "identifier.direct.licence",
        "DePassportRecognizer": "identifier.direct.passport",
        "EsPassportRecognizer": "identifier.direct.passport",
        "InPassportRecognizer": "identifier.direct.passport",
        "ItDriverLicenseRecognizer": "identifier.direct.licence",
        "ItPassportRecognizer": "identifier.direct.passport",
        "KrDriverLicenseRecognizer": "identifier.direct.licence",
        "KrPassportRecognizer": "identifier.direct.passport",
        "PhPassportRecognizer": "identifier.direct.passport",
        "UkDrivingLicenceRecognizer": "identifier.direct.licence",
        "UkPassportRecognizer": "identifier.direct.passport",
        "UsLicenseRecognizer": "identifier.direct.licence",
        "UsPassportRecognizer": "identifier.direct.passport",
        "ZaDriverLicenseRecognizer": "identifier.direct.licence",
        "ZaPassportRecognizer": "identifier.direct.passport",
        # machines and vehicles
        "DeKfzRecognizer": "identifier.direct.vehicle",
        "InVehicleRegistrationRecognizer": "identifier.direct.vehicle",
        "IpRecognizer": "identifier.direct.ip",
        "MacAddressRecognizer": "identifier.direct.mac",
        "UuidRecognizer": "identifier.direct.device",
        "ZaLicensePlateRecognizer": "identifier.direct.vehicle",
        # attributes
        "CaPostalCodeRecognizer": "identifier.quasi.zip",
        "DateRecognizer": "identifier.quasi.date",
        "DePlzRecognizer": "identifier.quasi.zip",
        "UkPostcodeRecognizer": "identifier.quasi.zip",
    }
)
