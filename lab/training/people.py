"""Invented people, places and dates for training sentences, from many traditions.

Family and given names are lists of common ones in each language; Faker adds those of
its locales. Every choice uses the caller's random source.
"""

import random  # training must repeat; nothing secret is drawn

from faker import Faker

_LOCALES = """
en_US en_GB en_IN en_AU en_CA de_DE de_AT fr_FR es_ES es_MX it_IT pl_PL nl_NL pt_BR
pt_PT sv_SE da_DK no_NO fi_FI cs_CZ sk_SK hu_HU ro_RO tr_TR hr_HR sl_SI lt_LT lv_LV
et_EE id_ID fil_PH vi_VN az_AZ ga_IE de_CH fr_CA yo_NG zu_ZA
"""

# Family names, then given names, of traditions for which Faker uses other scripts or
# has few names.
_TRADITIONS = {
    "chinese": (
        """
        Wang Li Zhang Liu Chen Yang Huang Zhao Wu Zhou Xu Sun Ma Zhu Hu Guo He Lin
        Gao Luo Zheng Liang Xie Tang Deng Feng Han Cao Zeng Peng Xiao Cai Pan Tian
        Dong Yuan Yu Jiang Du Ye Cheng Wei Su Lu Ding Ren Yao Shen Zhong Cui Lau
        Wong Cheung Chan Leung Ho Ng Kwok Tsai Hsu Hsieh Chiu Chang Tsang Lam Fong
        """,
        """
        Wei Fang Na Min Jing Li Qiang Lei Jun Yang Yong Yan Jie Juan Tao Ming Chao
        Xiu Ying Xia Ping Gang Hao Yu Ting Xin Jia Lin Mei Ling Xiaoming Jianguo
        Guowei Zihan Yichen Haoran Yuxuan Ruoxi Siyu Jiahui Mengyao Shuang Zhen Bo
        Cong Dandan Hui Kai Lan Ning Peng Rui Shan Tianyu Wenjing Xuan Yifan Siu Wai
        Kwan Ka Yan Mei-Ling Chun Hoi Tsz Wing
        """,
    ),
    "korean": (
        """
        Kim Lee Park Choi Jung Kang Cho Yoon Jang Lim Han Oh Seo Shin Kwon Hwang Ahn
        Song Yoo Hong Jeon Ko Moon Son Yang Bae Baek Heo Nam Noh Ha Joo Koo Woo Min
        """,
        """
        Min-jun Seo-yeon Ji-hoon Ji-woo Hyun-woo Soo-jin Eun-ji Sung-min Jae-hyun
        Yuna Hana Minji Jisoo Jiyeon Hyejin Dong-hyun Young-ho Kyung-hee Sang-woo
        Mi-kyung Tae-hyung Seung Eunjung Haneul Boram Junho Chul-soo Yeon-woo Jin
        """,
    ),
    "japanese": (
        """
        Sato Suzuki Takahashi Tanaka Watanabe Ito Yamamoto Nakamura Kobayashi Kato
        Yoshida Yamada Sasaki Yamaguchi Matsumoto Inoue Kimura Hayashi Shimizu Saito
        Mori Abe Ikeda Hashimoto Ishikawa Ogawa Fujita Okada Goto Hasegawa Murakami
        """,
        """
        Haruto Yuto Sota Yuki Hayato Haruki Ryusei Koki Sora Riku Yui Hina Sakura
        Aoi Rin Mio Yuna Kenji Hiroshi Takashi Akira Makoto Naoki Satoshi Keiko Yoko
        Tomoko Emi Kaori Noriko Masako Ayumi Daisuke Kazuo Shinji Megumi Rie Mai
        """,
    ),
    "vietnamese": (
        """
        Nguyen Tran Le Pham Hoang Huynh Phan Vu Vo Dang Bui Do Ho Ngo Duong Ly Dinh
        """,
        """
        Anh Minh Linh Thu Huong Lan Mai Nga Hoa Tuan Hung Dung Quang Huy Khanh Nam
        Phuong Thao Trang Yen Van Thi Bao Duc Long Son Thanh Vinh Hanh Ngoc Kim-Chi
        """,
    ),
    "indian": (
        """
        Sharma Patel Singh Kumar Gupta Reddy Nair Iyer Rao Mehta Joshi Desai Shah
        Chopra Kapoor Malhotra Banerjee Chatterjee Mukherjee Das Bose Ghosh Pillai
        Menon Krishnan Venkatesan Subramanian Agarwal Bhatt Trivedi Verma Yadav Khan
        """,
        """
        Aarav Vivaan Aditya Arjun Sai Rohan Rahul Amit Sanjay Vijay Rajesh Suresh
        Ananya Diya Priya Pooja Neha Sneha Kavya Lakshmi Meera Anjali Deepa Sunita
        Radha Gita Harpreet Gurpreet Jaspreet Manpreet Nikhil Karthik Ravi Anil
        Divya
        """,
    ),
    "arabic": (
        """
        Al-Farsi Haddad Khoury Mansour Hassan Hussein Abdullah Rahman Saleh Nasser
        Aziz Farouk Hamdan Najjar Qureshi Malik Siddiqui Al-Sayed Bakr Zaidi Karimi
        Hosseini Ahmadi Rezaei Mohammadi Tehrani Shirazi Yilmaz Demir Kaya El-Amin
        """,
        """
        Mohammed Ahmed Ali Omar Yusuf Ibrahim Khalid Tariq Hamza Bilal Karim Samir
        Fatima Aisha Mariam Zainab Khadija Layla Noor Yasmin Amira Huda Rania Salma
        Leila Parisa Shirin Reza Mehdi Hossein Farhad Mustafa Mehmet Ayse Elif Emre
        """,
    ),
    "african": (
        """
        Okafor Adeyemi Okonkwo Eze Balogun Nwosu Ogunleye Abubakar Mensah Owusu
        Asante Boateng Osei Kamau Mwangi Otieno Wanjiru Njoroge Dlamini Nkosi Ndlovu
        Zulu Moyo Banda Phiri Diallo Traore Keita Sow Ba Ndiaye Tesfaye Bekele Abebe
        Haile
        """,
        """
        Chidi Emeka Ngozi Adaeze Chioma Ifeoma Obinna Uche Tunde Yetunde Folake Ade
        Kwame Kofi Ama Akosua Abena Kwabena Wanjiku Achieng Juma Amina Thabo Sipho
        Nomsa Lindiwe Zanele Tendai Tariro Mamadou Aissatou Fatou Abebe Selam Dawit
        """,
    ),
    "african_american": (
        """
        Washington Jefferson Booker Banks Jackson Mosley Charles Dorsey Gaines
        Rivers Joseph Singleton Bolden Cummings Hairston Pettway Ravenell Muhammad
        Sharpton
        """,
        """
        DeShawn Jamal Tyrone Darnell Terrell Malik Trevon Tremayne Rasheed Kareem
        Marquis Lamar Lakisha Latoya Ebony Aaliyah Imani Keisha Tamika Tanisha Kiara
        Shanice Precious Latonya Nia Jada Raven Deja Shaniqua Laquisha D'Andre
        """,
    ),
    "hispanic": (
        """
        Garcia Rodriguez Martinez Hernandez Lopez Gonzalez Perez Sanchez Ramirez
        Torres Flores Rivera Gomez Diaz Reyes Morales Cruz Ortiz Gutierrez Chavez
        Ramos Castillo Mendoza Vasquez Jimenez Velazquez Cisneros Escobar Menendez
        Lujan
        """,
        """
        Jose Luis Carlos Juan Jorge Pedro Alejandro Miguel Rafael Diego Mateo
        Santiago Maria Guadalupe Rosa Carmen Ana Sofia Isabella Camila Valentina
        Lucia Esperanza Xochitl Ximena Marisol Yolanda Raul Ruben Nydia Joaquin Tony
        Lou Grisel
        """,
    ),
    "anglo": (
        """
        Smith Johnson Williams Brown Jones Miller Davis Wilson Anderson Taylor
        Thomas Moore Martin Thompson White Harris Clark Lewis Walker Hall Young King
        Wright Hill Green Adams Baker Nelson Carter Mitchell Roberts Turner Phillips
        Campbell Parker Evans Edwards Collins Stewart Cook Bell Cooper Bailey Kelly
        Howard Ward Price Wood Cox Gray Page Stone Frost Marsh Love Rose Field Banks
        Short Long Rich Wise Strong Small Black Bush Moon Winter Summers May O'Brien
        O'Neill McKay
        """,
        """
        James Mary John Patricia Robert Jennifer Michael Linda David Elizabeth
        William Barbara Richard Susan Joseph Jessica Thomas Karen Chris Sarah Daniel
        Nancy Mark Lisa Will Hope Grace Faith Joy Rose Lily Daisy Violet Ivy Iris
        Amber Jade Ruby Pearl Dawn Eve April May June Summer Autumn Rob Bob Bill
        Jack Frank Drew Grant Chase Hunter Mason Cole Dean Guy Art Ray Jean Pat Sue
        Penny Dot Ginger Sandy Misty Crystal Angel Destiny Chance Lane Reed Clay
        Cliff Heath Tom Tim Jim Ben Sam Max Alex Jamie Jordan Taylor Morgan Casey
        Riley Quinn Ted
        """,
    ),
    "eastern_european": (
        """
        Ivanov Petrov Sidorov Smirnov Kuznetsov Popov Volkov Shevchenko Kovalenko
        Bondarenko Tkachenko Melnyk Nowak Kowalski Jovanovic Petrovic Nikolic
        Markovic Papadopoulos Georgiou Dimitrov Ivanova Petrova Kowalska Horvat
        Novak Dvorak
        """,
        """
        Ivan Dmitri Sergei Alexei Nikolai Vladimir Oleksandr Andriy Yuri Igor Olga
        Natasha Svetlana Tatiana Irina Oksana Anastasia Ksenia Katarzyna Agnieszka
        Milos Dragan Jelena Milica Georgios Dimitrios Eleni Sofia Vasilis Zdenek
        """,
    ),
}
_PARTICLES = ("van der", "van", "von", "de la", "de", "da", "dos", "bin", "al", "del")


class People:
    """Draws people, places, addresses and dates.

    Args:
        source: the random source; the same seed draws the same sequence.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._fakers: list[Faker] = []
        for locale in _LOCALES.split():
            faker = Faker(locale)
            faker.seed_instance(source.randrange(2**32))
            self._fakers.append(faker)
        self._lists = [
            (family.split(), given.split()) for family, given in _TRADITIONS.values()
        ]

    def _faker(self) -> Faker:
        return self._source.choice(self._fakers)

    def given(self) -> str:
        """Return a given name."""
        if self._source.random() < 0.45:
            return self._faker().first_name()
        return self._source.choice(self._source.choice(self._lists)[1])

    def family(self) -> str:
        """Return a family name, sometimes with a particle or a hyphen."""
        chance = self._source.random()
        if chance < 0.4:
            name = self._faker().last_name()
        else:
            name = self._source.choice(self._source.choice(self._lists)[0])
        if chance > 0.96:
            return f"{self._source.choice(_PARTICLES)} {name}"
        if chance > 0.93:
            return f"{name}-{self._faker().last_name()}"
        return name

    def full(self) -> str:
        """Return a full name in one of the usual forms."""
        draw = self._source.random()
        if draw < 0.25:
            family, given = self._source.choice(self._lists)
            pair = [self._source.choice(given), self._source.choice(family)]
            if draw < 0.05:
                pair.reverse()
            return " ".join(pair)
        given, family = self.given(), self.family()
        if draw < 0.31:
            return f"{given} {self._source.choice('ABCDEFGHJKLMNPRSTW')}. {family}"
        if draw < 0.35:
            return f"{family}, {given}"
        if draw < 0.38:
            return f"{given[0]}. {family}"
        if draw < 0.42:
            return f"{given} {self.given()} {family}"
        return f"{given} {family}"

    def anyone(self) -> str:
        """Return a given name, a family name, or both."""
        draw = self._source.random()
        if draw < 0.45:
            return self.full()
        return self.given() if draw < 0.85 else self.family()

    def handle(self) -> str:
        """Return a given and a family name in the form of an account name."""
        given, family = self.given().lower(), self.family().lower().replace(" ", "")
        return f"{given}{self._source.choice('._-')}{family}"

    def city(self) -> str:
        """Return a city."""
        return self._faker().city()

    def place(self) -> str:
        """Return a city, a country or a state."""
        draw = self._source.random()
        if draw < 0.6:
            return self.city()
        return self._fakers[0].country() if draw < 0.85 else self._fakers[0].state()

    def organization(self) -> str:
        """Return a company, school, hospital or office."""
        draw = self._source.random()
        if draw < 0.5:
            return self._faker().company()
        kinds = (
            "{} Hospital|{} Medical Center|{} University|{} High School|{} Bank|"
            "{} Insurance|St. {} Clinic|{} Police Department|{} City Council|"
            "University of {}|{} & Sons|{} Labs|{} Consulting|Bank of {}|{} Elementary"
        )
        name = self.city() if draw < 0.8 else self.family()
        return self._source.choice(kinds.split("|")).format(name)

    def address(self) -> str:
        """Return a postal address, or the street part of one."""
        faker, source = self._faker(), self._source
        street = faker.street_address().replace("\n", ", ")
        draw = source.random()
        if draw < 0.3:
            return street
        if draw < 0.38:
            return f"P.O. Box {source.randrange(10, 9999)}, {faker.city()}"
        if draw < 0.5:
            return f"{faker.street_name()} {source.randrange(1, 300)}"
        unit = source.choice(
            ("", "", f", Apt {source.randrange(1, 99)}", ", Suite 680")
        )
        order = f"{street}{unit}, {faker.city()} {faker.postcode()}"
        if draw > 0.75:
            order = f"{street}{unit}, {faker.postcode()} {faker.city()}"
        if draw > 0.9:
            order += f", {faker.current_country()}"
        return order if source.random() < 0.75 else order.replace(", ", "\n")

    def age(self) -> str:
        """Return an age as people write it."""
        years = self._source.randrange(1, 104)
        form = self._source.choice(
            [
                "{} years old",
                "{}-year-old",
                "{} year old",
                "{} yo",
                "{} y/o",
                "age {}",
                "aged {}",
                "{}yo",
                "{} months old",
                "{}",
                "{} years of age",
                "{}F",
                "{}M",
                "{} yrs old",
            ]
        )
        return form.format(years)

    def date(self) -> str:
        """Return a day as people write it, with or without the year."""
        faker = self._fakers[0]
        day = faker.date_between("-90y", "+2y")
        form = self._source.choice(
            [
                "%B %d, %Y",
                "%d %B %Y",
                "%m/%d/%Y",
                "%d/%m/%Y",
                "%Y-%m-%d",
                "%b %d %Y",
                "%d.%m.%Y",
                "%B %d",
                "%d %b",
                "%m/%d/%y",
                "%d-%b-%Y",
                "%A, %B %d, %Y",
                "%B %dth, %Y",
                "%d %b %y",
                "%B %Y",
                "%m-%d-%Y",
            ]
        )
        return day.strftime(form)

    def belonging(self) -> str:
        """Return a nationality, a people, a religion or a party's followers."""
        return self._source.choice(_ALL_BELONGING)


_BELONGING = """
American, British, French, German, Italian, Spanish, Polish, Dutch, Swedish, Danish,
Norwegian, Finnish, Czech, Hungarian, Romanian, Turkish, Greek, Russian, Ukrainian,
Chinese, Japanese, Korean, Vietnamese, Thai, Filipino, Indian, Pakistani,
Bangladeshi, Iranian, Iraqi, Syrian, Egyptian, Moroccan, Nigerian, Kenyan,
Ethiopian, Somali, Ghanaian, Mexican, Brazilian, Cuban, Colombian, Argentinian,
Canadian, Australian, Irish, Scottish, Muslim, Christian, Catholic, Jewish, Hindu,
Buddhist, Sikh, Protestant, Mormon, atheist, Democrat, Republican, Kurdish, Roma,
Hispanic, Latina, African American, Native American, Cypriot, Icelandic, Slovak,
Croatian, Serbian, Armenian, Georgian, Belgian, Portuguese
"""
_ALL_BELONGING = [each.strip() for each in _BELONGING.split(",")]
